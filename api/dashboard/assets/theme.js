"use strict";
// Before the first paint: the theme the reader chose here last, and the mark that scripts run.

const root = document.documentElement;
root.classList.add("scripted");

function kept() {
  try { return localStorage.getItem("autotune-theme"); } catch { return null; }
}

function wear(theme) {
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
}

wear(kept());
document.addEventListener("click", (event) => {
  if (!(event.target instanceof Element) || !event.target.closest("#theme")) return;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  wear(now === "dark" ? "light" : "dark");
  try { localStorage.setItem("autotune-theme", root.dataset.theme); } catch { /* it holds for this page */ }
});

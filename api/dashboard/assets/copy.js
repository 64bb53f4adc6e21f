// Buttons that copy the text they name.

const SHOWN_MS = 1600;

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Beyond loopback without TLS a browser has no clipboard for scripts; the old way still works there.
    const place = document.createElement("textarea");
    place.className = "hidden";
    place.value = text;
    document.body.append(place);
    place.select();
    const done = document.execCommand("copy");
    place.remove();
    return done;
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target instanceof Element ? event.target.closest("button.copy") : null;
  if (button === null) return;
  event.preventDefault(); // it stands in a summary, which would open or close
  const from = document.getElementById(button.dataset.copy);
  if (from === null) return;
  button.textContent = (await copy(from.textContent)) ? "copied" : "select it by hand";
  setTimeout(() => { button.textContent = "copy"; }, SHOWN_MS);
});

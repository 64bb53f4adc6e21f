// Charts: the words of a mark beside the pointer, and from mark to mark by the arrow keys.

const box = document.createElement("div");
box.className = "told";
box.setAttribute("role", "status");
box.hidden = true;
document.body.append(box);
let told = null;

const markOf = (node) => (node instanceof Element ? node.closest(".chart .mark") : null);

// The browser's own bubble would come a second later over ours.
function words(mark) {
  const title = mark.querySelector(":scope > title");
  if (title !== null) {
    mark.dataset.told = title.textContent;
    mark.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  return mark.dataset.told || "";
}

function tell(mark, x, y) {
  told = mark;
  box.textContent = words(mark);
  box.hidden = box.textContent === "";
  if (box.hidden) return;
  const room = box.getBoundingClientRect();
  box.style.left = Math.max(4, Math.min(x + 14, innerWidth - room.width - 8)) + "px";
  box.style.top = Math.max(4, y + room.height + 22 > innerHeight ? y - room.height - 12 : y + 16) + "px";
}

function hush() {
  told = null;
  box.hidden = true;
}

document.addEventListener("pointermove", (event) => {
  const mark = markOf(event.target);
  if (mark !== null) tell(mark, event.clientX, event.clientY);
  else if (told !== null) hush();
});
document.addEventListener("pointerdown", (event) => {
  const mark = markOf(event.target);
  if (mark !== null) tell(mark, event.clientX, event.clientY);
});
document.addEventListener("scroll", hush, { capture: true, passive: true });
document.addEventListener("focusout", hush);

function stops(place) {
  const marks = Array.from(place.querySelectorAll(".chart .mark"));
  return marks.map((mark) => mark.closest("a") || mark);
}

function go(stop) {
  stop.setAttribute("tabindex", "-1");
  stop.focus();
  const mark = stop.matches(".mark") ? stop : stop.querySelector(".mark");
  const room = mark.getBoundingClientRect();
  tell(mark, room.left + room.width / 2, room.top + room.height / 2);
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { hush(); return; }
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const place = event.target instanceof Element ? event.target.closest(".draw") : null;
  if (step === undefined || place === null || event.altKey || event.ctrlKey || event.metaKey) return;
  const all = stops(place);
  if (all.length === 0) return;
  const now = all.indexOf(event.target);
  event.preventDefault();
  go(all[now < 0 ? (step > 0 ? 0 : all.length - 1) : (now + step + all.length) % all.length]);
});

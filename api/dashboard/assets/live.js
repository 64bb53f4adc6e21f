"use strict";
// Asks for this page again every two seconds while it is seen, and puts in what changed. Without it the page is a snapshot.

const EVERY_MS = 2000;
const LONGEST_MS = 15000;
const parser = new DOMParser();
const known = new Map();
let tag = null;
let pause = EVERY_MS;
let timer = null;

const parts = (root) => root.querySelectorAll("[data-part][id]");

function say(text, state) {
  const place = document.getElementById("live");
  place.textContent = text;
  place.className = "live " + state;
}

// Times of the server in the reader's own clock.
function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]:not(.ago)")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.getTime())) {
      time.textContent = at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
    }
  }
}

function age() {
  for (const time of document.querySelectorAll("time.ago")) {
    const seconds = Math.max(0, Math.round((Date.now() - new Date(time.dateTime).getTime()) / 1000));
    if (!Number.isNaN(seconds)) {
      time.textContent = seconds < 60 ? seconds + " s ago" : Math.floor(seconds / 60) + " min " + (seconds % 60) + " s ago";
    }
  }
}

function keepOpen(before, after) {
  const opened = before.querySelectorAll("details");
  after.querySelectorAll("details").forEach((one, i) => { one.open = Boolean(opened[i] && opened[i].open); });
}

function keepScrolled(before, after) {
  const scrolled = Array.from(before.querySelectorAll(".scroll"), (one) => one.scrollLeft);
  return () => after.querySelectorAll(".scroll").forEach((one, i) => { one.scrollLeft = scrolled[i] || 0; });
}

function show(text) {
  const fresh = parser.parseFromString(text, "text/html");
  document.title = fresh.title;
  for (const part of parts(fresh)) {
    const html = part.outerHTML;
    const there = document.getElementById(part.id);
    if (there === null || known.get(part.id) === html) continue;
    known.set(part.id, html);
    const active = document.activeElement;
    const link = there.contains(active) ? active.getAttribute("href") : null;
    const node = document.importNode(part, true);
    keepOpen(there, node);
    const scroll = keepScrolled(there, node);
    localise(node);
    there.replaceWith(node);
    scroll();
    if (link !== null) {
      const again = Array.from(node.querySelectorAll("a")).find((one) => one.getAttribute("href") === link);
      if (again) again.focus({ preventScroll: true });
    }
  }
  age();
}

async function ask() {
  timer = null;
  try {
    const headers = { Accept: "text/html" };
    if (tag !== null) headers["If-None-Match"] = tag;
    const answer = await fetch(location.pathname, { headers, cache: "no-store", credentials: "same-origin" });
    if (answer.redirected) { location.reload(); return; }
    if (answer.status === 200) {
      const text = await answer.text();
      tag = answer.headers.get("ETag");
      show(text);
    } else if (answer.status !== 304) {
      throw new Error("answered " + answer.status);
    }
    pause = EVERY_MS;
    say("live", "on");
  } catch (error) {
    pause = Math.min(LONGEST_MS, pause * 2);
    say("no answer; asking again", "off");
  }
  next();
}

function next() {
  if (timer === null && !document.hidden) timer = setTimeout(ask, pause);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
    timer = null;
  } else {
    ask();
  }
});

for (const part of parts(document)) known.set(part.id, part.outerHTML);
localise(document);
age();
setInterval(age, 1000);
next();

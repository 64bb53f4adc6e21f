// Asks for this page again every two seconds while it is seen, and puts in what changed. Where the server streams events
// it asks when one comes, and otherwise seldom. It streams while a tuner runs: a server that ends with its study waits for
// the pages to let go of their streams, which they do when they have the end. Without this module a page is a snapshot.

const EVERY_MS = 2000;
const HEARING_MS = 10000;
const LONGEST_MS = 15000;
const FAILURES = 3;
const parser = new DOMParser();
const known = new Map();
let tag = null;
let pause = EVERY_MS;
let timer = null;
let asked = 0;
let failures = 0;
let updated = new Date();
let stream = null;

const parts = (root) => root.querySelectorAll("[data-part][id]");

// It is read aloud, so it is set only when it changes.
function say(text, state) {
  const place = document.getElementById("live");
  if (place.textContent !== text) place.textContent = text;
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

// What was chosen for a comparison stays chosen, wherever its row is now.
function keepChecked(before, after) {
  for (const box of before.querySelectorAll("input[type=checkbox]")) {
    const same = after.querySelector(`input[type=checkbox][name="${CSS.escape(box.name)}"][value="${CSS.escape(box.value)}"]`);
    if (same) same.checked = box.checked;
  }
}

// A log that was read at its end is followed; anything else stays where it was.
function keepScrolled(before, after) {
  const which = ".scroll, .draw, .log";
  const was = Array.from(before.querySelectorAll(which), (one) => ({
    left: one.scrollLeft,
    top: one.scrollTop,
    end: one.matches(".log") && one.scrollTop + one.clientHeight >= one.scrollHeight - 4,
  }));
  return () => after.querySelectorAll(which).forEach((one, i) => {
    if (was[i] === undefined) return;
    one.scrollLeft = was[i].left;
    one.scrollTop = was[i].end ? one.scrollHeight : was[i].top;
  });
}

// What can be found again in a part that was made anew: the link or box that had the focus.
function focusedIn(there) {
  const active = document.activeElement;
  if (active === null || !there.contains(active)) return null;
  if (active.matches("a[href]")) return `a[href="${CSS.escape(active.getAttribute("href"))}"]`;
  if (active.matches("input[type=checkbox]")) return `input[name="${CSS.escape(active.name)}"][value="${CSS.escape(active.value)}"]`;
  if (active.matches("summary")) return "summary";
  return null;
}

// A form somebody is filling in is left alone until they are done.
function busy(there) {
  const active = document.activeElement;
  return active !== null && there.contains(active) && active.matches("select, input:not([type=checkbox]), textarea");
}

function show(text) {
  const fresh = parser.parseFromString(text, "text/html");
  document.title = fresh.title;
  const there = document.querySelector("meta[name=autotune-stream]");
  const streams = fresh.querySelector("meta[name=autotune-stream]");
  if (there !== null && streams === null) { there.remove(); hush(); }
  if (there === null && streams !== null) { document.head.append(document.importNode(streams)); listen(); }
  for (const part of parts(fresh)) {
    const html = part.outerHTML;
    const there = document.getElementById(part.id);
    if (there === null || known.get(part.id) === html || busy(there)) continue;
    known.set(part.id, html);
    const focused = focusedIn(there);
    const node = document.importNode(part, true);
    keepOpen(there, node);
    keepChecked(there, node);
    const scroll = keepScrolled(there, node);
    localise(node);
    there.replaceWith(node);
    scroll();
    if (focused !== null) {
      const again = node.querySelector(focused);
      if (again) again.focus({ preventScroll: true });
    }
  }
  age();
}

async function ask() {
  timer = null;
  asked = Date.now();
  try {
    const headers = { Accept: "text/html" };
    if (tag !== null) headers["If-None-Match"] = tag;
    const answer = await fetch(location.pathname + location.search, { headers, cache: "no-store", credentials: "same-origin" });
    if (answer.redirected) { location.reload(); return; }
    if (answer.status === 200) {
      const text = await answer.text();
      tag = answer.headers.get("ETag");
      show(text);
    } else if (answer.status !== 304) {
      throw new Error("answered " + answer.status);
    }
    const running = document.querySelector("meta[name=autotune-stream]") !== null;
    pause = hears() || !running ? HEARING_MS : EVERY_MS;
    failures = 0;
    updated = new Date();
    say(running ? "live" : "up to date", "on");
  } catch (error) {
    pause = Math.min(LONGEST_MS, pause * 2);
    failures += 1;
    say("no answer; asking again", "off");
  }
  stale();
  next();
}

// A page that is no longer told anything must not look alive.
function stale() {
  const away = failures >= FAILURES && document.querySelector("meta[name=autotune-stream]") !== null;
  document.body.classList.toggle("stale", away);
  const place = document.getElementById("stale");
  place.hidden = !away;
  if (away) {
    const since = updated.toLocaleTimeString([], { timeStyle: "short" });
    place.textContent = `Not updated since ${since}: the tuner has ended or cannot be reached. "autotune serve" shows the result.`;
  }
}

function next() {
  if (timer === null && !document.hidden) timer = setTimeout(ask, pause);
}

const hears = () => stream !== null && stream.readyState === EventSource.OPEN;

// Something happened: ask now, but no sooner than two seconds after the last time.
function wake() {
  if (timer === null || document.hidden) return;
  clearTimeout(timer);
  timer = setTimeout(ask, Math.max(0, asked + EVERY_MS - Date.now()));
}

// A hidden page holds no connection. The browser itself connects again when the server was away.
function listen() {
  const place = document.querySelector("meta[name=autotune-stream]");
  if (place === null || stream !== null) return;
  stream = new EventSource(place.content);
  stream.addEventListener("event", wake);
  stream.addEventListener("changed", wake);
  stream.addEventListener("error", wake);
}

function hush() {
  if (stream !== null) stream.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    clearTimeout(timer);
    timer = null;
    hush();
  } else {
    listen();
    ask();
  }
});

for (const part of parts(document)) known.set(part.id, part.outerHTML);
localise(document);
age();
for (const log of document.querySelectorAll(".log")) log.scrollTop = log.scrollHeight;
setInterval(age, 1000);
if (!document.hidden) listen();
next();

// What pages do beyond what the browser does by itself. Without it all of them work; they only do not move.
"use strict";

// A confirmation is sent once. The server would do it once anyway.
for (const form of document.querySelectorAll("form[data-once]")) {
  form.addEventListener("submit", () => {
    for (const button of form.querySelectorAll("button")) button.disabled = true;
  });
}
// A page that the browser shows again from its memory can be sent again.
addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("form[data-once] button")) button.disabled = false;
});

// The first page follows what happens: each event has a part of the page, made by the server.
for (const root of document.querySelectorAll("[data-live]")) follow(root);

function follow(root) {
  const state = root.querySelector("[data-state]");
  const pause = root.querySelector("[data-pause]");
  const held = new Map(); // what came while it was paused
  let paused = false;

  const say = (word, text) => {
    if (state.dataset.state === word) return; // it is read out at each change
    state.dataset.state = word;
    state.textContent = text;
  };
  const take = (part, html) => {
    if (paused) held.set(part, html);
    else show(root.querySelector(`[data-part="${part}"]`), part, html);
  };

  const source = new EventSource(root.dataset.live);
  source.addEventListener("open", () => { if (!paused) say("live", "live"); });
  source.addEventListener("error", () => {
    // A session that is over is answered with an error, after which the browser does not try again.
    if (source.readyState === EventSource.CLOSED) say("ended", "ended: load the page again");
    else say("away", "connection lost, trying again");
  });
  for (const part of ["vitals", "orders"]) source.addEventListener(part, (event) => take(part, event.data));

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    if (paused) {
      say("paused", "paused");
      return;
    }
    if (source.readyState === EventSource.OPEN) say("live", "live");
    for (const [part, html] of held) take(part, html);
    held.clear();
  });
  pause.parentElement.hidden = false;
}

function show(target, part, html) {
  const next = document.createElement("template");
  next.innerHTML = html;
  if (part === "orders") patchRows(target, next.content);
  else patchWhole(target, next.content);
}

// patchWhole replaces everything, and gives the focus back to what leads to the same place.
function patchWhole(target, content) {
  const link = target.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  target.replaceChildren(content);
  if (link) target.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus({ preventScroll: true });
}

// patchRows keeps the rows that have not changed as they are: who is reading, has selected text or stands on a link is not disturbed.
function patchRows(body, content) {
  const rows = [...content.children];
  const wanted = new Set(rows.map((row) => row.id));
  const first = body.children.length === 0;
  let at = body.firstElementChild;
  for (const row of rows) {
    while (at && !wanted.has(at.id)) {
      const gone = at;
      at = at.nextElementSibling;
      gone.remove();
    }
    if (!at || at.id !== row.id) {
      document.getElementById(row.id)?.remove(); // it stood elsewhere
      if (!first) row.classList.add("fresh");
      body.insertBefore(row, at);
      continue;
    }
    const here = at;
    at = at.nextElementSibling;
    if (here.dataset.v === row.dataset.v) continue;
    here.dataset.v = row.dataset.v;
    // The first cell holds the link, which stays the same.
    [...row.children].forEach((cell, i) => { if (i > 0) here.children[i].replaceWith(cell); });
    here.classList.remove("fresh");
    void here.offsetWidth; // so that the animation runs again
    here.classList.add("fresh");
  }
  while (at) {
    const gone = at;
    at = at.nextElementSibling;
    gone.remove();
  }
}

"use strict";
// The pages work without this: it only keeps the figures of a batch fresh, and opens the source that a citation leads to.

const PERIOD_MS = 2000;

function keepFresh(section) {
  const link = document.querySelector(".follow");
  if (link && !location.search.includes("follow=1")) link.hidden = true;
  let last = section.innerHTML;
  async function refresh() {
    if (!document.hidden) {
      try {
        const answer = await fetch(section.dataset.live, { headers: { Accept: "text/html" }, redirect: "error" });
        if (answer.ok) {
          const html = await answer.text();
          // Made by the same templates as the page itself: text from outside is escaped there.
          if (html !== last) section.innerHTML = last = html;
        }
      } catch {
        // The service is away: the next look tells.
      }
    }
    setTimeout(refresh, PERIOD_MS);
  }
  setTimeout(refresh, PERIOD_MS);
}

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const details = target && target.closest("details");
  if (details && !details.open) {
    details.open = true;
    target.scrollIntoView({ block: "center" });
  }
}

for (const section of document.querySelectorAll("[data-live]")) keepFresh(section);
addEventListener("hashchange", openTarget);
openTarget();

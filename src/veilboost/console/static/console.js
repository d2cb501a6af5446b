// Live updates: when the server says that something has changed, the page loads itself again in the background and
// replaces its parts with data-live. Everything also works without this script, by reloading the page.
"use strict";
(() => {
  const address = document.body.dataset.events;
  const notice = document.getElementById("updates");
  if (!address || !notice || !window.EventSource) return;
  let version = null, waiting = false, loading = false;

  const opened = (part) => [...part.querySelectorAll("details")].map((each) => each.open);

  async function refresh() {
    if (document.hidden || loading) { waiting = true; return; }
    waiting = false;
    loading = true;
    try {
      const answer = await fetch(location.href, { headers: { "X-Live-Update": "1", Accept: "text/html" } });
      if (answer.redirected || answer.status === 401) { location.assign("/login"); return; }
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const other = fresh.getElementById(part.id);
        if (!other || other.innerHTML === part.innerHTML || part.contains(document.activeElement)) continue;
        const states = opened(part);
        other.querySelectorAll("details").forEach((each, at) => { each.open = states[at] || each.open; });
        part.replaceChildren(...other.childNodes);
      }
      notice.textContent = `Updated at ${new Date().toLocaleTimeString()}.`;
    } catch {
      notice.textContent = "The console cannot be reached.";
    } finally {
      loading = false;
      if (waiting) refresh();
    }
  }

  const source = new EventSource(address);
  source.onopen = () => { notice.textContent = "Updates are on."; };
  source.onerror = () => { notice.textContent = "The console cannot be reached."; };
  source.onmessage = (event) => {
    if (event.data !== version) refresh(); // also the first time: something may have changed since the page was made
    version = event.data;
  };
  source.addEventListener("over", () => { source.close(); location.reload(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && waiting) refresh(); });
})();

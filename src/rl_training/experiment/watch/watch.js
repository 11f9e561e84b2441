"use strict";
// Asks for what has changed every two seconds, and exchanges only those blocks.
(() => {
  const query = location.search;
  const held = new Map();

  async function look() {
    const answer = await fetch("/data.json" + query, {cache: "no-store"});
    if (!answer.ok) throw new Error(String(answer.status));
    const data = await answer.json();
    document.title = data.title;
    for (const [name, html] of Object.entries(data.blocks)) {
      const block = document.getElementById(name);
      if (!block || held.get(name) === html) continue;
      // What somebody points at stays as it is for as long.
      if (held.has(name) && block.querySelector(".tip")) continue;
      const open = [...block.querySelectorAll("details")].map((part) => part.open);
      block.innerHTML = html;
      block.querySelectorAll("details").forEach((part, index) => { part.open = open[index] || false; });
      held.set(name, html);
    }
  }

  async function go() {
    let wait = 2000;
    if (!document.hidden) {
      try {
        await look();
        document.getElementById("lost").hidden = true;
      } catch {
        document.getElementById("lost").hidden = false;
        wait = 5000;
      }
    }
    setTimeout(go, wait);
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look().catch(() => {}); });
  setTimeout(go, 1000);
})();

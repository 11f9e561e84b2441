"use strict";
// Shows the values under the pointer. They are read back from the lines, whose box is 1,000 by 1,000.
(() => {
  const BOX = 1000;
  const read = new WeakMap();

  function points(path) {
    let found = read.get(path);
    if (!found) {
      found = path.getAttribute("d").slice(1).split("L").map((pair) => pair.split(" ").map(Number));
      read.set(path, found);
    }
    return found;
  }

  function nearest(list, x) {
    let low = 0, high = list.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (list[middle][0] < x) low = middle; else high = middle;
    }
    return Math.abs(list[low][0] - x) <= Math.abs(list[high][0] - x) ? list[low] : list[high];
  }

  function axis(text) {
    const [low, high, log] = text.split(" ");
    const from = log ? Math.log10(low) : Number(low), to = log ? Math.log10(high) : Number(high);
    return (share) => {
      const value = from * (1 - share) + to * share;
      return log ? 10 ** value : value;
    };
  }

  function short(value, range) {
    const size = Math.abs(value);
    if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(2);
    const digits = Math.max(0, Math.min(8, 4 - Math.ceil(Math.log10(Math.max(range, 1e-12)))));
    return value.toLocaleString("en", {maximumFractionDigits: digits});
  }

  function hide(figure) {
    for (const part of figure.querySelectorAll(".tip, .cross")) part.remove();
    for (const part of figure.querySelectorAll(".line.near")) part.classList.remove("near");
  }

  function show(figure, event) {
    const svg = figure.querySelector(".frame > svg");
    const area = svg.getBoundingClientRect();
    const x = (event.clientX - area.left) / area.width, y = (event.clientY - area.top) / area.height;
    hide(figure);
    if (x < -0.02 || x > 1.02) return;
    const toStep = axis(svg.dataset.x), toValue = axis(svg.dataset.y);
    const range = Math.abs(toValue(1) - toValue(0));
    const rows = [];
    for (const line of svg.querySelectorAll(".line")) {
      const list = points(line);
      if (x * BOX < list[0][0] - 20 || x * BOX > list[list.length - 1][0] + 20) continue;
      const [px, py] = nearest(list, x * BOX);
      const name = line.querySelector("title");
      rows.push({line, px, name: name ? name.textContent : "", value: toValue(1 - py / BOX), away: Math.abs(py / BOX - y)});
    }
    if (!rows.length) return;
    const near = rows.reduce((best, row) => (row.away < best.away ? row : best));
    near.line.classList.add("near");
    const cross = document.createElementNS("http://www.w3.org/2000/svg", "line");
    cross.setAttribute("class", "cross");
    for (const [key, value] of [["x1", near.px / 10 + "%"], ["x2", near.px / 10 + "%"], ["y1", "0"], ["y2", "100%"]])
      cross.setAttribute(key, value);
    svg.append(cross);
    const tip = document.createElement("div");
    tip.className = "tip";
    const head = document.createElement("div");
    head.textContent = "step " + Math.round(toStep(near.px / BOX)).toLocaleString("en");
    tip.append(head);
    rows.sort((a, b) => b.value - a.value);
    const shown = rows.length > 14 ? rows.filter((row) => row === near || row.line.matches(".main")) : rows;
    for (const row of shown.slice(0, 14)) {
      const entry = document.createElement("div"), swatch = document.createElement("i");
      const name = document.createElement("span"), value = document.createElement("b");
      swatch.className = row.line.getAttribute("class").replace(/\b(line|near)\b/g, "");
      name.textContent = row.name;
      value.textContent = short(row.value, range);
      if (row === near) entry.className = "near";
      entry.append(swatch, name, value);
      tip.append(entry);
    }
    figure.append(tip);
    const outer = figure.getBoundingClientRect();
    const at = area.left - outer.left + (near.px / BOX) * area.width;
    const left = at + tip.offsetWidth + 24 > outer.width ? at - tip.offsetWidth - 12 : at + 12;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, event.clientY - outer.top - tip.offsetHeight - 8) + "px";
  }

  for (const kind of ["pointermove", "pointerdown"])
    document.addEventListener(kind, (event) => {
      const frame = event.target.closest && event.target.closest(".frame");
      for (const figure of document.querySelectorAll(".chart")) if (!frame || !figure.contains(frame)) hide(figure);
      if (frame) show(frame.closest(".chart"), event);
    });
  document.addEventListener("pointerleave", () => document.querySelectorAll(".chart").forEach(hide));
  window.addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });
})();

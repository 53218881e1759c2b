// Zoom, search, and turning the picture of flamegraph.rs over. Lengths are those of that file.
"use strict";
(() => {
  const WIDTH = 1200, MARGIN = 10, ROW = 17, HEAD = 62, FOOT = 44, CHARACTER = 7;
  const svg = document.documentElement;
  const levels = Number(svg.dataset.levels), total = Number(svg.dataset.total), unit = svg.dataset.unit;
  const height = HEAD + levels * ROW + FOOT;
  const shown = document.getElementById("shown"), found = document.getElementById("found");
  const turn = document.getElementById("turn");
  const frames = Array.from(document.getElementsByClassName("f"), (element) => ({
    element,
    rectangle: element.getElementsByTagName("rect")[0],
    text: element.getElementsByTagName("text")[0],
    at: Number(element.dataset.at),
    cost: Number(element.dataset.cost),
    level: Number(element.dataset.level),
    name: element.dataset.name,
    note: element.dataset.note,
    isFound: false,
  }));
  let zoomed = frames[0], isIcicle = false;

  function quantity(cost) {
    const share = total > 0 ? (100 * cost / total).toFixed(2) : "0.00";
    const amount = unit === "ns" ? (cost / 1e9).toFixed(3) + " s" : unit === "count" ? cost : cost + " " + unit;
    return amount + ", " + share + "%";
  }

  function about(frame) {
    return fitted(frame.name + ": " + (frame.note ?? quantity(frame.cost)), WIDTH * 0.7);
  }

  function fitted(name, width) {
    const room = Math.floor((width - 6) / CHARACTER), characters = Array.from(name);
    if (room < 3) return "";
    return characters.length <= room ? name : characters.slice(0, room - 2).join("") + "..";
  }

  function draw() {
    const scale = (WIDTH - 2 * MARGIN) / Math.max(zoomed.cost, 1), end = zoomed.at + zoomed.cost;
    for (const frame of frames) {
      const isAbove = frame.level < zoomed.level && frame.at <= zoomed.at && frame.at + frame.cost >= end;
      const isBelow = frame.level >= zoomed.level && frame.at >= zoomed.at && frame.at + frame.cost <= end;
      frame.element.style.display = isAbove || isBelow ? "" : "none";
      if (!isAbove && !isBelow) continue;
      const isWhole = isAbove || frame === zoomed;
      const x = isWhole ? MARGIN : MARGIN + (frame.at - zoomed.at) * scale;
      const width = isWhole ? WIDTH - 2 * MARGIN : frame.cost * scale;
      const y = isIcicle ? HEAD + frame.level * ROW : height - FOOT - (frame.level + 1) * ROW;
      frame.element.classList.toggle("above", isAbove);
      frame.element.classList.toggle("found", frame.isFound);
      frame.rectangle.setAttribute("x", x);
      frame.rectangle.setAttribute("y", y);
      frame.rectangle.setAttribute("width", width);
      frame.text.setAttribute("x", x + 3);
      frame.text.setAttribute("y", y + 12);
      frame.text.textContent = fitted(frame.name, width);
    }
  }

  function search(typed) {
    let pattern = null;
    try {
      pattern = typed ? new RegExp(typed, "i") : null;
    } catch {
      found.textContent = "not a regular expression: " + typed;
      return;
    }
    // In preorder: what is below a match is in its cost.
    let cost = 0, end = 0, count = 0;
    for (const frame of frames) {
      frame.isFound = pattern !== null && pattern.test(frame.name);
      if (!frame.isFound) continue;
      count += 1;
      if (frame.at < end) continue;
      cost += frame.cost;
      end = frame.at + frame.cost;
    }
    found.textContent = pattern === null ? " " : count + " found: " + quantity(cost);
    draw();
  }

  function ask() {
    const typed = window.prompt("Find (a regular expression; nothing ends the search)", "");
    if (typed !== null) search(typed);
  }

  function zoom(frame) {
    zoomed = frame;
    draw();
  }

  function reset() {
    zoomed = frames[0];
    search("");
  }

  for (const frame of frames) {
    frame.element.addEventListener("click", () => zoom(frame));
    frame.element.addEventListener("mouseover", () => {
      shown.textContent = about(frame);
    });
  }
  document.getElementById("frames").addEventListener("mouseleave", () => {
    shown.textContent = about(zoomed);
  });
  document.getElementById("reset").addEventListener("click", reset);
  document.getElementById("search").addEventListener("click", ask);
  turn.addEventListener("click", () => {
    isIcicle = !isIcicle;
    turn.textContent = isIcicle ? "flame" : "icicle";
    draw();
  });
  window.addEventListener("keydown", (event) => {
    if (event.key === "/" || (event.ctrlKey && event.key === "f")) {
      event.preventDefault();
      ask();
    } else if (event.key === "Escape") {
      reset();
    }
  });
})();

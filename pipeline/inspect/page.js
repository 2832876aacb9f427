// The failures: only the lines in sight are in the document, so that any number of them opens at once.
"use strict";
{
  const LINE = 30, AROUND = 12;
  const at = (name) => document.getElementById(name);
  const { reasons, rows } = JSON.parse(at("failed").textContent);
  const text = rows.map(([name, reason, detail]) => `${name}\n${reasons[reason]}\n${detail}`.toLowerCase());
  let found = [];

  const gap = (height) => {
    const cell = document.createElement("td");
    cell.colSpan = 3;
    cell.style.height = `${height}px`;
    const line = document.createElement("tr");
    line.className = "gap";
    line.append(cell);
    return line;
  };

  const line = ([name, reason, detail]) => {
    const made = document.createElement("tr");
    for (const words of [reasons[reason], name, detail]) {
      const cell = document.createElement("td");
      cell.textContent = cell.title = words;
      made.append(cell);
    }
    return made;
  };

  const draw = () => {
    const box = at("scroll");
    const first = Math.max(0, Math.floor(box.scrollTop / LINE) - AROUND);
    const last = Math.min(found.length, Math.ceil((box.scrollTop + box.clientHeight) / LINE) + AROUND);
    const lines = found.slice(first, last).map((number) => line(rows[number]));
    at("rows").replaceChildren(gap(first * LINE), ...lines, gap((found.length - last) * LINE));
  };

  const search = () => {
    const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const reason = reasons.indexOf(at("reason").value);
    found = [];
    for (let number = 0; number < rows.length; number += 1)
      if ((reason < 0 || rows[number][1] === reason) && words.every((word) => text[number].includes(word))) found.push(number);
    at("found").textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
    at("scroll").scrollTop = 0;
    draw();
  };

  at("scroll").addEventListener("scroll", draw, { passive: true });
  at("search").addEventListener("input", search);
  at("reason").addEventListener("change", search);
  search();
}

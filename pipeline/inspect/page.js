// The failures, as a virtual list: only the visible rows are in the document, so the page opens fast with any number.
"use strict";
{
  const ROW_HEIGHT_PX = 30, OVERSCAN_ROWS = 12;
  const byId = (id) => document.getElementById(id);
  const { reasons, rows } = JSON.parse(byId("failed").textContent);
  const searchTexts = rows.map(([name, reason, detail]) => `${name}\n${reasons[reason]}\n${detail}`.toLowerCase());
  let matches = [];

  const spacer = (height) => {
    const cell = document.createElement("td");
    cell.colSpan = 3;
    cell.style.height = `${height}px`;
    const row = document.createElement("tr");
    row.className = "gap";
    row.append(cell);
    return row;
  };

  const tableRow = ([name, reason, detail]) => {
    const row = document.createElement("tr");
    for (const text of [reasons[reason], name, detail]) {
      const cell = document.createElement("td");
      cell.textContent = cell.title = text;
      row.append(cell);
    }
    return row;
  };

  const render = () => {
    const viewport = byId("scroll");
    const first = Math.max(0, Math.floor(viewport.scrollTop / ROW_HEIGHT_PX) - OVERSCAN_ROWS);
    const bottom = viewport.scrollTop + viewport.clientHeight;
    const last = Math.min(matches.length, Math.ceil(bottom / ROW_HEIGHT_PX) + OVERSCAN_ROWS);
    const visible = matches.slice(first, last).map((index) => tableRow(rows[index]));
    byId("rows").replaceChildren(
      spacer(first * ROW_HEIGHT_PX), ...visible, spacer((matches.length - last) * ROW_HEIGHT_PX));
  };

  const search = () => {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const reason = reasons.indexOf(byId("reason").value);
    matches = [];
    for (let index = 0; index < rows.length; index += 1)
      if ((reason < 0 || rows[index][1] === reason) && words.every((word) => searchTexts[index].includes(word)))
        matches.push(index);
    byId("found").textContent = `${matches.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
    byId("scroll").scrollTop = 0;
    render();
  };

  byId("scroll").addEventListener("scroll", render, { passive: true });
  byId("search").addEventListener("input", search);
  byId("reason").addEventListener("change", search);
  search();
}

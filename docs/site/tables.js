// Tables of three columns and more are cards on a phone (site.css): each cell gets its column's name.
// In one that is wider than the page, names break.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    const columns = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    if (columns.length > 2) {
      table.classList.add("cards");
      for (const row of table.tBodies[0].rows)
        [...row.cells].forEach((cell, number) => {
          if (cell.textContent.trim()) cell.dataset.column = columns[number];
        });
    }
    if (table.offsetWidth > table.parentElement.clientWidth) table.classList.add("wide");
  }
});

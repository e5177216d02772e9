// A click on a heading sorts its table by that column: numbers by data-sort, empty cells last.
const key = cell => cell.dataset.sort === undefined ? null : Number(cell.dataset.sort);
const compare = (a, b, numeric) => {
  if (!numeric) return a.textContent.localeCompare(b.textContent);
  const x = key(a), y = key(b);
  return x === null || y === null ? (x === null) - (y === null) : x - y;
};
const bindTable = table => {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, k) => head.querySelector('button').addEventListener('click', () => {
    const down = head.getAttribute('aria-sort') === 'ascending', numeric = head.classList.contains('number');
    heads.forEach(h => h.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const blank = row => numeric && key(row.cells[k]) === null;
    const rows = [...body.rows].sort((a, b) => blank(a) - blank(b)
      || (down ? -1 : 1) * compare(a.cells[k], b.cells[k], numeric));
    body.append(...rows);
  }));
};
const bindTables = () => document.querySelectorAll('table.sortable').forEach(bindTable);
bindTables();

"""Style and script of the report, on top of those of `page`: navigation, sortable tables, colours for nine methods."""

from __future__ import annotations

# Okabe and Ito's colours, which most colour-blind readers can tell apart, and a violet that stays far from all of them;
# dashes as a second sign
STYLE = """
:root { --c0: #0072b2; --c1: #2f9bd6; --c2: #00845f; --c3: #b8578f; --c4: #c98a00; --c5: #7d7d7d; --c6: #3b3b3b;
  --c7: #d04a00; --c8: #7317cf; --card: #f5f3ed; }
@media (prefers-color-scheme: dark) { :root { --c0: #5aaef0; --c1: #a5d8f7; --c2: #35c99d; --c3: #e79cc6; --c4: #efb73e;
  --c5: #8f949c; --c6: #e6e3dc; --c7: #ff8245; --c8: #ad5cff; --card: #1e2126; } }
html { scroll-behavior: smooth; scroll-padding-top: 1rem; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
.layout { display: grid; grid-template-columns: 15rem minmax(0, 1fr); max-width: 96rem; margin: 0 auto; }
.layout main { max-width: none; margin: 0; padding: 3rem 2rem 3rem 2.5rem; min-width: 0; }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 3.2rem 0 2rem 1.5rem; font: .84rem/1.4
  system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
nav summary { display: none; font-weight: 600; cursor: pointer; }
nav b { display: block; margin: 1.2rem 0 .3rem; font-weight: 600; }
nav summary + b { margin-top: 0; }
nav a { display: block; padding: .22rem .6rem; margin-left: -.6rem; border-radius: 4px; color: var(--soft);
  text-decoration: none; overflow-wrap: anywhere; }
nav a:hover, nav a:focus-visible { background: var(--card); color: var(--ink); }
nav a.here { color: var(--ink); box-shadow: inset 3px 0 var(--c7); border-radius: 0; }
h2 { font-size: 1.6rem; border-top: 1px solid var(--grid); padding-top: 2rem; margin: 3.5rem 0 .4rem; }
section > h3 { font: 600 1.2rem/1.35 Charter, "Bitstream Charter", Cambria, Georgia, serif; margin: 2.8rem 0 .4rem; }
section > h3 code { display: block; color: var(--soft); font-size: .72rem; font-weight: 400; }
h4 { font-size: .95rem; margin: 1.8rem 0 .6rem; font-weight: 600; }
#findings h2 { border-top: 0; padding-top: 0; margin-top: 2rem; }
.findings { padding: 1.3rem 1.5rem 1.3rem 2.6rem; background: var(--card); border-radius: 8px; max-width: 52rem;
  margin: 1.5rem 0; }
.findings li { margin: .35rem 0; padding-left: .2rem; }
.soft { max-width: 50rem; }
.scroll { margin: .6rem 0 .8rem; }
.scroll.tall { max-height: 32rem; overflow-y: auto; }
table { font-size: .88rem; }
th, td, th:first-child, td:first-child { padding: .36rem .65rem; text-align: left; line-height: 1.4; }
th.number, td.number { text-align: right; }
thead th { position: sticky; top: 0; background: var(--paper); padding: 0; box-shadow: inset 0 -1px var(--rule);
  border-bottom: 0; }
th:first-child { padding: 0; }
thead th { white-space: normal; vertical-align: bottom; }
th button { all: unset; box-sizing: border-box; width: 100%; display: block; padding: .4rem .65rem;
  cursor: pointer; }
th button:hover, th button:focus-visible { background: var(--card); }
th button::after { content: "↕"; color: var(--rule); margin-left: .35em; font-size: .85em; }
th[aria-sort=ascending] button::after { content: "↑"; color: var(--c7); }
th[aria-sort=descending] button::after { content: "↓"; color: var(--c7); }
tbody tr { background: var(--paper); }
tbody tr:hover { background: var(--card); }
td:first-child { background: inherit; }
th:first-child, td:first-child { position: sticky; left: 0; z-index: 1; }
td[title] { cursor: help; }
.agrees::before { content: "✓ "; color: var(--c2); } .better::before { content: "▲ "; color: var(--c0); }
.worse::before { content: "▼ "; color: var(--c7); } td.none { color: var(--soft); }
.charts { grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 2rem 2.2rem; margin-top: 1rem; }
.charts.one { max-width: 34rem; }
.dots .ours { --c: var(--c7); } .dots .own { --c: var(--c8); } .dots .paper { --c: var(--soft); }
.dots .zero { stroke: var(--ink); }
.dots g path { stroke: var(--c); stroke-width: 2; opacity: .55; } .dots g circle { fill: var(--c); }
.dots g.paper circle { fill: var(--paper); stroke: var(--c); stroke-width: 2; } .dots svg .name { fill: var(--ink); }
.legend .key i { width: 9px; height: 9px; border-radius: 50%; vertical-align: 0; border: 2px solid var(--c); }
.legend .key.paper i { background: none; }
.legend { gap: .1rem .9rem; }
.legend li[role=button] { cursor: pointer; border-radius: 3px; }
.s8 { --c: var(--c8); } .s7 .line, .s8 .line { stroke-width: 2.6; }
.s1 .line { stroke-dasharray: 7 4; } .s5 .line { stroke-dasharray: 3 4; } .s6 .line { stroke-dasharray: 8 3 2 3; }
.off-0 .s0, .off-1 .s1, .off-2 .s2, .off-3 .s3, .off-4 .s4, .off-5 .s5, .off-6 .s6, .off-7 .s7,
.off-8 .s8 { opacity: .13; }
.off-0 li.s0, .off-1 li.s1, .off-2 li.s2, .off-3 li.s3, .off-4 li.s4, .off-5 li.s5, .off-6 li.s6,
.off-7 li.s7, .off-8 li.s8 { opacity: .5; text-decoration: line-through; }
@media (max-width: 64rem) { .layout { display: block; } .layout main { padding: 1.5rem 1rem; }
  nav { position: static; height: auto; padding: 1.2rem 1rem 0; } nav summary { display: list-item; }
  nav details { columns: 2; } nav b, nav summary + b { break-after: avoid; margin-top: .8rem; }
  nav a.here { box-shadow: none; } }
@media (max-width: 40rem) { nav details { columns: auto; } td:first-child { white-space: normal; min-width: 5rem; }
  th button, td, td:first-child { padding-left: .4rem; padding-right: .4rem; }
  .findings { padding: .8rem 1rem .8rem 1.9rem; } table { width: auto; } h2 { font-size: 1.35rem; } }
@media print { nav { display: none; } .layout { display: block; } .scroll.tall { max-height: none; } }
"""

SCRIPT = """
const key = cell => cell.dataset.sort === undefined ? null : Number(cell.dataset.sort);
const compare = (a, b, numeric) => {
  if (!numeric) return a.textContent.localeCompare(b.textContent);
  const x = key(a), y = key(b);
  return x === null || y === null ? (x === null) - (y === null) : x - y;
};
for (const table of document.querySelectorAll('table.sortable')) {
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
}
for (const item of document.querySelectorAll('.legend li[class^=s]')) {
  const flip = () => item.closest('.charts').classList.toggle('off-' + item.className.slice(1));
  item.tabIndex = 0; item.setAttribute('role', 'button'); item.title = 'click to hide or show';
  item.addEventListener('click', flip);
  item.addEventListener('keydown', e => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); flip(); } });
}
const narrow = matchMedia('(max-width: 64rem)'), contents = document.querySelector('nav details');
const fold = () => { contents.open = !narrow.matches; };
fold(); narrow.addEventListener('change', fold);
const links = new Map([...document.querySelectorAll('nav a')].map(a => [a.hash.slice(1), a]));
const seen = new IntersectionObserver(entries => entries.forEach(e => {
  if (!e.isIntersecting) return;
  links.forEach(a => a.classList.remove('here'));
  links.get(e.target.id)?.classList.add('here');
}), { rootMargin: '0px 0px -75% 0px' });
links.forEach((_, id) => { const part = document.getElementById(id); if (part) seen.observe(part); });
"""

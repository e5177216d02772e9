"""What every page has to be, asked of a browser: no wider than the screen, readable, with headings and alt texts."""

from __future__ import annotations

from browser import Browser

# texts with too little contrast (WCAG AA), images without alt text, headings that skip a level, no language or title
PROBLEMS = """(() => {
  const parse = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const linear = v => v / 255 <= .03928 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.map(linear); return .2126 * r + .7152 * g + .0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > .99) return c.slice(0, 3); } return [255, 255, 255]; };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const e = node.parentElement, style = getComputedStyle(e);
    const text = node.textContent.trim().slice(0, 40);
    if (!text || !e.checkVisibility({ opacityProperty: true })) continue;
    if (['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(e.tagName)) continue;
    const ink = parse(e.closest('svg') ? style.fill : style.color).slice(0, 3);
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x), size = parseFloat(style.fontSize);
    const contrast = (a + .05) / (b + .05);
    if (contrast < (size >= 24 ? 3 : 4.5)) found.push(`contrast ${contrast.toFixed(2)}: ${text}`);
  }
  for (const image of document.images) if (!image.alt) found.push('no alt text');
  for (const svg of document.querySelectorAll('svg')) if (!svg.getAttribute('aria-label')) found.push('no label');
  let level = 0;
  for (const h of document.querySelectorAll('h1, h2, h3, h4')) {
    const own = Number(h.tagName[1]);
    if (own > level + 1) found.push(`heading ${h.textContent.slice(0, 40)}`);
    level = own;
  }
  if (document.querySelectorAll('h1').length !== 1) found.push('not one h1');
  if (!document.documentElement.lang || !document.title) found.push('no language or title');
  if (!document.querySelector('main')) found.push('no main part');
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  if (new Set(ids).size < ids.length) found.push('an id twice');
  return found;
})()"""


def accessible(browser: Browser) -> list[str]:
    """What is wrong with the open page."""
    return list(browser.run(PROBLEMS))


def fits(browser: Browser) -> bool:
    """Whether nothing has to be scrolled sideways."""
    return bool(browser.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))

// Asks its own address for a newer page and shows that. What was hidden, folded or focused stays so.
const parts = () => [...document.querySelectorAll('.charts, nav details')];
const keys = () => [...document.querySelectorAll('a, button, [tabindex], summary')];
const replaceBy = page => {
  const before = parts().map(part => part.open ?? [...part.classList].filter(name => name.startsWith('off-')));
  const focus = keys().indexOf(document.activeElement);
  document.querySelector('.layout').replaceWith(document.adoptNode(page.querySelector('.layout')));
  document.body.dataset.version = page.body.dataset.version;
  bindCharts(); bindTables(); bindContents();
  parts().forEach((part, k) => {
    if (typeof before[k] === 'boolean') part.open = before[k];
    else if (before[k]) part.classList.add(...before[k]); });
  keys()[focus]?.focus({ preventScroll: true });
};
const refresh = async () => {
  if (!document.hidden) {
    const answer = await fetch(location.pathname, { cache: 'no-store' }).catch(() => null);
    const text = answer?.ok ? await answer.text().catch(() => null) : null;
    if (text === null) {
      const note = document.getElementById('live');
      if (note) note.textContent = 'The server has stopped: this is the last state. Reload the page once it runs again.';
      return;
    }
    const page = new DOMParser().parseFromString(text, 'text/html');
    if (page.body.dataset.version !== document.body.dataset.version) replaceBy(page);
  }
  setTimeout(refresh, 2000);
};
setTimeout(refresh, 2000);

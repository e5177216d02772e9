// The contents are folded on a narrow screen, and mark the part of the page that is read.
const narrow = matchMedia('(max-width: 64rem)');
const bindContents = () => {
  const contents = document.querySelector('nav details');
  if (!contents) return;
  narrow.onchange = () => { contents.open = !narrow.matches; };
  narrow.onchange();
  const links = new Map([...document.querySelectorAll('nav a')].map(a => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver(entries => entries.forEach(e => {
    if (!e.isIntersecting) return;
    links.forEach(a => a.classList.remove('here'));
    links.get(e.target.id)?.classList.add('here');
  }), { rootMargin: '0px 0px -75% 0px' });
  links.forEach((_, id) => { const part = document.getElementById(id); if (part) seen.observe(part); });
};
bindContents();

// Charts that stand together show their values at the step under the pointer; a click on a legend hides a line.
const bindGroup = group => {
  const charts = [...group.querySelectorAll('.chart')].map(f => ({
    svg: f.querySelector('svg'), hover: f.querySelector('.hover'), cross: f.querySelector('.cross'),
    dots: f.querySelectorAll('.dot'), texts: f.querySelectorAll('output'), where: f.querySelector('.where b'),
    series: JSON.parse(f.dataset.series) }));
  const nearest = (xs, x) => xs.reduce((best, v, k) => Math.abs(v - x) < Math.abs(xs[best] - x) ? k : best, 0);
  const show = (x, visible) => charts.forEach(c => c.series.forEach((s, i) => {
    if (!s.x.length) return;
    const k = nearest(s.x, x), [px, py] = s.at[k];
    c.dots[i].setAttribute('cx', px); c.dots[i].setAttribute('cy', py); c.texts[i].textContent = s.text[k];
    c.cross.setAttribute('transform', `translate(${px})`); c.where.textContent = s.x[k];
    c.hover.setAttribute('visibility', visible ? 'visible' : 'hidden'); }));
  for (const c of charts) {
    c.svg.addEventListener('pointermove', e => {
      const box = c.svg.getBoundingClientRect(), s = c.series.find(s => s.x.length);
      if (!s) return;
      const px = (e.clientX - box.left) / box.width * c.svg.viewBox.baseVal.width;
      show(s.x[nearest(s.at.map(p => p[0]), px)], true); });
    c.svg.addEventListener('pointerleave', () => show(Infinity, false));
  }
};
const bindKey = item => {
  const flip = () => item.closest('.charts').classList.toggle('off-' + item.className.slice(1));
  item.tabIndex = 0; item.setAttribute('role', 'button'); item.title = 'click to hide or show';
  item.addEventListener('click', flip);
  item.addEventListener('keydown', e => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); flip(); } });
};
const bindCharts = () => {
  document.querySelectorAll('.charts').forEach(bindGroup);
  document.querySelectorAll('.legend li[class^=s]').forEach(bindKey);
};
bindCharts();

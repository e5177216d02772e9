// Charts that stand together show their values at the step under the pointer; a click on a legend hides a line.
const bindGroup = group => {
  const charts = [...group.querySelectorAll('.chart')].map(f => ({
    svg: f.querySelector('svg'), hover: f.querySelector('.hover'), cross: f.querySelector('.cross'),
    dots: f.querySelectorAll('.dot'), texts: f.querySelectorAll('output'), where: f.querySelector('.where b'),
    series: JSON.parse(f.dataset.series) }));
  const nearest = (xs, x) => xs.reduce((best, v, k) => Math.abs(v - x) < Math.abs(xs[best] - x) ? k : best, 0);
  const show = (x, visible) => charts.forEach(c => {
    const found = c.series.map((s, i) => [s, i, nearest(s.x, x)]).filter(([s]) => s.x.length);
    for (const [s, i, k] of found) {
      const [px, py] = s.at[k], over = k === s.x.length - 1 && x > s.x[k];
      c.dots[i].setAttribute('cx', px); c.dots[i].setAttribute('cy', py);
      c.texts[i].textContent = s.text[k] + (over ? s.end : '');
    }
    if (!found.length) return;
    const far = ([s, , k]) => Math.abs(s.x[k] - x);
    const [s, , k] = found.reduce((best, f) => far(f) < far(best) ? f : best);
    c.cross.setAttribute('transform', `translate(${s.at[k][0]})`); c.where.textContent = s.x[k];
    c.hover.setAttribute('visibility', visible ? 'visible' : 'hidden'); });
  for (const c of charts) {
    c.svg.addEventListener('pointermove', e => {
      const box = c.svg.getBoundingClientRect();
      const px = (e.clientX - box.left) / box.width * c.svg.viewBox.baseVal.width;
      const points = c.series.flatMap(s => s.x.map((x, k) => [x, s.at[k][0]]));
      if (points.length) show(points[nearest(points.map(p => p[1]), px)][0], true); });
    c.svg.addEventListener('pointerleave', () => show(Math.max(...c.series.flatMap(s => s.x)), false));
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

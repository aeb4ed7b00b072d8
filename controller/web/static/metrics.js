// All series of the run by prefix: each one a chart, as many as a reader opens.
import {debounce, fill, h} from '/static/dom.js';
import {count, plural, toNumber} from '/static/format.js';
import {ChartGroup, loadCharts} from '/static/chart.js';
import {align, csv, offer, smooth} from '/static/series.js';

const together = 24;       // names of one request
const exactSteps = 800;    // of one answer

const prefixOf = (name) => (name.includes('/') ? name.slice(0, name.indexOf('/')) : 'other');

export async function show(page) {
  let {names} = await page.ofRun('/metrics');
  const dygraphs = loadCharts();
  const wanted = new Set();   // names of charts that have been seen
  const answers = new Map();  // name to its series
  const charts = new Map();
  let step = page.run.status.step;
  const group = new ChartGroup({onZoom: () => askAll()});

  const filter = h('input', {type: 'search', 'data-filter': true, placeholder: 'Filter by name …',
    'aria-label': 'Filter of series', value: page.query.get('q') ?? ''});
  const weight = h('input', {type: 'range', min: '0', max: '0.99', step: '0.01', value: page.query.get('ema') ?? '0',
    'aria-label': 'Smoothing'});
  const weightText = h('output');
  const logarithmic = h('input', {type: 'checkbox', checked: page.query.has('log')});
  const save = h('button', {type: 'button'}, 'Save as CSV');
  const summary = h('p', {class: 'note', role: 'status'});
  const list = h('div', {class: 'prefixes'});

  function draw(name) {
    const one = answers.get(name);
    if (!one) return;
    const {x, of} = align([one]);
    const values = of.get(name);
    const ema = toNumber(weight.value);
    const smoothed = values && ema > 0 ? {mid: smooth(values.mid, ema), low: values.low, high: values.high} : values;
    if (smoothed && ema > 0 && values.exact) smoothed.low = smoothed.high = smoothed.mid;
    const chart = charts.get(name);
    chart.spec.logarithmic = logarithmic.checked;
    chart.update(x, [smoothed]);
  }
  async function ask(some) {
    const range = group.range;
    const [from, to] = range ?? [];
    for (let i = 0; i < some.length; i += together) {
      const {series} = await page.ofRun('/series', {name: some.slice(i, i + together), points: 240,
        from: from && Math.max(1, Math.floor(from)), to: to && Math.ceil(to)});
      if (group.range !== range) return;  // another part is shown by now, and asked for
      for (const one of series) {
        answers.set(one.name, one);
        draw(one.name);
      }
    }
  }
  const inSight = () => [...wanted].filter((name) => charts.get(name).element.offsetParent);
  const askAll = () => ask(inSight()).catch(() => {});
  let waiting = [];
  const askSoon = debounce(30, () => {
    const some = waiting;
    waiting = [];
    ask(some).catch(() => {});
  });

  function chartOf(name) {
    if (!charts.has(name)) {
      charts.set(name, group.add({title: name, lines: [{name: 'value', colour: 'blue', dash: 0}],
        missing: 'The run recorded no number of this name.', onVisible: () => {
          wanted.add(name);
          waiting.push(name);
          askSoon();
        }}));
    }
    return charts.get(name).element;
  }
  const opened = new Map();  // prefix to whether a reader has opened or closed it
  function matches() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    return names.filter((name) => words.every((word) => name.toLowerCase().includes(word)));
  }
  function drawList() {
    const some = matches();
    const prefixes = Map.groupBy ? Map.groupBy(some, prefixOf) : some.reduce((map, name) =>
      map.set(prefixOf(name), [...(map.get(prefixOf(name)) ?? []), name]), new Map());
    const open = (prefix) => opened.get(prefix) ?? (filter.value !== '' && some.length <= 60);
    list.replaceChildren(...[...prefixes].map(([prefix, its]) => {
      const inside = h('div', {class: 'charts small'});
      const element = h('details', {class: 'prefix', open: open(prefix)},
          h('summary', {'data-row': true}, h('span', {class: 'strong'}, prefix), ' ',
              h('span', {class: 'note'}, plural(its.length, 'series', 'series'))), inside);
      const build = () => element.open && inside.childElementCount === 0 && inside.append(...its.map(chartOf));
      element.addEventListener('toggle', () => {
        opened.set(prefix, element.open);
        build();
      });
      build();
      return element;
    }));
    fill(summary, `${count(some.length)} of ${plural(names.length, 'series', 'series')}. ` +
      'Bands are the smallest and the largest value where several steps share a point.');
  }
  function changed() {
    fill(weightText, toNumber(weight.value) > 0 ? toNumber(weight.value).toFixed(2) : 'off');
    const query = new URLSearchParams();
    if (filter.value) query.set('q', filter.value);
    if (toNumber(weight.value) > 0) query.set('ema', weight.value);
    if (logarithmic.checked) query.set('log', '1');
    page.remember(query);
  }

  // Exact numbers, in windows of as many steps as an answer has without buckets.
  async function download() {
    save.disabled = true;
    try {
      const some = matches();
      const end = toNumber(page.run.status.step);
      const whole = new Map(some.map((name) => [name, {name, exact: true, steps: [], mean: []}]));
      for (let from = 0; from <= end; from += exactSteps) {
        for (let i = 0; i < some.length; i += together) {
          const {series} = await page.ofRun('/series', {name: some.slice(i, i + together), points: exactSteps,
            from: Math.max(1, from), to: from + exactSteps - 1});
          for (const one of series) {
            whole.get(one.name).steps.push(...one.steps);
            whole.get(one.name).mean.push(...one.mean);
          }
        }
      }
      offer(`${page.run.id}.csv`, csv([...whole.values()]), 'text/csv');
    } finally {
      save.disabled = false;
    }
  }
  save.addEventListener('click', () => download().catch((error) => fill(summary, error.message)));
  filter.addEventListener('input', debounce(150, () => {
    opened.clear();
    changed();
    drawList();
  }));
  weight.addEventListener('input', () => {
    changed();
    charts.forEach((_, name) => draw(name));
  });
  logarithmic.addEventListener('change', () => {
    changed();
    charts.forEach((_, name) => draw(name));
  });

  if (filter.value === '') opened.set('actor', true);
  changed();
  drawList();
  page.root.append(h('div', {class: 'title'}, h('h1', null, 'Metrics'), filter),
      h('div', {class: 'filters'}, h('label', null, h('span', null, 'Smoothing ', weightText), weight),
          h('label', {class: 'inline'}, logarithmic, ' Logarithmic axis'), save), summary, list);
  return {
    refresh: async (run) => {
      if (run.status.step === step) return;
      step = run.status.step;
      page.run = run;
      const now = (await page.ofRun('/metrics')).names;
      if (now.join() !== names.join()) {
        names = now;
        drawList();
      }
      await ask(inSight());
    },
    shown: () => dygraphs.then(() => group.repaint(), (error) => fill(summary, error.message)),
    close: () => group.close(),
  };
}

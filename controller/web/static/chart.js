// Curves over steps: dygraphs with a legend, marks, a shared cursor, a table of the same numbers and
// a sentence for those who do not see them.
import {details, fill, h, simpleTable} from '/static/dom.js';
import {count, number, palette} from '/static/format.js';
import {extremes} from '/static/series.js';

let library = null;

// Loads dygraphs once. Of its plugins only axes and grid are used: the others write HTML texts.
export function loadCharts() {
  library ??= new Promise((resolve, reject) => {
    document.head.append(h('link', {rel: 'stylesheet', href: '/static/dygraph.css'}));
    const script = h('script', {src: '/static/dygraph.min.js'});
    script.onload = () => {
      const Dygraph = globalThis.Dygraph;
      Dygraph.PLUGINS = Dygraph.PLUGINS.filter((plugin) =>
        plugin === Dygraph.Plugins.Axes || plugin === Dygraph.Plugins.Grid);
      resolve(Dygraph);
    };
    script.onerror = () => {
      library = null;
      reject(new Error('The library of the charts could not be loaded.'));
    };
    document.head.append(script);
  });
  return library;
}

const dashes = [null, [7, 4], [2, 3], [9, 3, 2, 3], [4, 4]];
const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || '#888';

// Charts that have their cursor, marks and zoom in common.
export class ChartGroup {
  constructor({onZoom, range = null} = {}) {
    this.charts = [];
    this.marks = [];
    this.range = range;  // [from, to] of the zoom
    this.at = null;      // the step of the cursor
    this.onZoom = onZoom;
    this.theme = matchMedia('(prefers-color-scheme: dark)');
    this.repaint = () => this.charts.forEach((chart) => chart.paint());
    this.theme.addEventListener('change', this.repaint);
  }
  add(spec) {
    const chart = new Chart(this, spec);
    this.charts.push(chart);
    return chart;
  }
  setMarks(marks) {
    if (JSON.stringify(marks) === JSON.stringify(this.marks)) return;
    this.marks = marks;
    this.repaint();
  }
  point(x, source) {
    this.at = x;
    for (const chart of this.charts) chart.point(x, chart === source);
  }
  zoom(range) {
    this.range = range;
    this.charts.forEach((chart) => chart.graph?.updateOptions({dateWindow: range}));
    this.onZoom?.(range);
  }
  close() {
    this.theme.removeEventListener('change', this.repaint);
    this.charts.forEach((chart) => chart.close());
  }
}

// spec: {title, unit, hint, missing, stacked, lines: [{name, unit, axis, format, colour, sparse}]}; an axis
// "y2" has its numbers on the right.
class Chart {
  constructor(group, spec) {
    this.group = group;
    this.spec = spec;
    this.x = [];
    this.lines = [];
    this.graph = null;
    this.visible = false;
    this.legend = h('ul', {class: 'legend'});
    this.at = h('span', {class: 'at'});
    this.plot = h('div', {class: 'plot', role: 'img', tabindex: '0',
      'aria-label': `Chart of ${spec.title}, which is being loaded`, onkeydown: (event) => this.keyed(event)});
    this.none = h('p', {class: 'note none', hidden: true}, spec.missing ?? 'The run recorded no such numbers.');
    this.numbers = details('Table of these numbers', () => this.table());
    this.element = h('figure', {class: 'chart'}, h('figcaption', null,
        h('span', {class: 'chart-title', title: spec.hint}, spec.title,
        spec.unit ? h('span', {class: 'unit'}, `, ${spec.unit}`) : null), this.at), this.legend,
    this.plot, this.none, this.numbers.element);
    this.seen = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting) || this.visible) return;
      this.visible = true;
      spec.onVisible?.();
      this.paint();
    }, {rootMargin: '200px'});
    this.seen.observe(this.element);
    this.size = new ResizeObserver(() => this.graph?.resize());
    this.size.observe(this.plot);
  }

  // x: steps; values: for each line of the spec {mid, low, high}, or undefined if there is none.
  update(x, values) {
    const lines = this.spec.lines.map((line, i) => ({...line, i, values: values[i]}))
        .filter((line) => line.values && extremes(line.values.mid));
    this.x = x;
    this.lines = lines;
    this.none.hidden = lines.length > 0;
    for (const part of [this.plot, this.legend, this.numbers.element]) part.hidden = lines.length === 0;
    this.plot.setAttribute('aria-label', this.describe());
    this.numbers.refresh();
    this.paint();
  }

  style(line) {
    return {colour: colour(line.colour ?? palette[line.i % palette.length]),
      dash: this.spec.stacked ? null : dashes[(line.dash ?? line.i) % dashes.length]};
  }

  options() {
    const Dygraph = globalThis.Dygraph;
    const {stacked, lines} = this.spec;
    const axisOf = (name) => lines.find((line) => (line.axis ?? 'y') === name);
    const ticks = (name) => (value) => (axisOf(name)?.format ?? number)(value, 3);
    const series = {};
    for (const line of this.lines) {
      const {colour: paint, dash} = this.style(line);
      series[`s${line.i}`] = {color: paint, strokePattern: dash, axis: line.axis ?? 'y',
        strokeWidth: stacked ? 1 : 1.6, drawPoints: Boolean(line.sparse), pointSize: 3,
        connectSeparatedPoints: true};
    }
    const faint = colour('line');
    const model = {...Dygraph.defaultInteractionModel};
    for (const name of ['touchstart', 'touchmove', 'touchend']) delete model[name];
    return {
      file: this.rows(), labels: ['step', ...this.lines.map((line) => `s${line.i}`)], series,
      customBars: !stacked, stackedGraph: Boolean(stacked), stackedGraphNaNFill: 'none',
      fillAlpha: stacked ? 0.55 : 0.16, gridLineColor: faint, axisLineColor: faint,
      gridLineWidth: 0.6, axisLabelFontSize: 12, highlightCircleSize: 3, interactionModel: model,
      dateWindow: this.group.range, xRangePad: 4, logscale: Boolean(this.spec.logarithmic),
      axes: {x: {drawGrid: false, pixelsPerLabel: 44, axisLabelFormatter: (value) =>
        Number.isInteger(value) ? count(value) : ''},
      y: {axisLabelFormatter: ticks('y'), axisLabelWidth: 50, pixelsPerLabel: 24,
        independentTicks: true,
        includeZero: Boolean(stacked || this.spec.fromZero)},
      y2: {axisLabelFormatter: ticks('y2'), axisLabelWidth: 46, drawGrid: false, pixelsPerLabel: 24,
        independentTicks: true,
        includeZero: true}},
      underlayCallback: (canvas, area, graph) => this.mark(canvas, area, graph),
      highlightCallback: (event, x) => this.group.point(x, this),
      unhighlightCallback: () => this.group.point(null, this),
      zoomCallback: (from, to) => this.group.zoom(this.graph.isZoomed('x') ? [from, to] : null),
    };
  }

  rows() {
    return this.x.map((step, i) => [step, ...this.lines.map(({values}) => {
      if (this.spec.stacked) return values.mid[i];
      return [values.low[i], values.mid[i], values.high[i]];
    })]);
  }

  paint() {
    const row = this.group.at === null ? null : this.nearest(this.group.at);
    this.showLegend(row);
    if (!this.visible || this.lines.length === 0 || !globalThis.Dygraph || !this.plot.isConnected) return;
    const names = this.lines.map((line) => line.i).join();
    if (this.graph && this.drawn !== names) {
      this.graph.destroy();
      this.graph = null;
    }
    this.drawn = names;
    const {file, ...options} = this.options();
    if (this.graph) this.graph.updateOptions({file, ...options});
    else this.graph = new globalThis.Dygraph(this.plot, file, options);
    if (row !== null) this.graph.setSelection(row);
  }

  mark(canvas, area, graph) {
    canvas.save();
    canvas.font = '11px system-ui, sans-serif';
    canvas.textAlign = 'center';
    const placed = [];
    for (const {x, sign, tone} of this.group.marks) {
      const left = graph.toDomXCoord(x);
      if (left < area.x || left > area.x + area.w) continue;
      canvas.strokeStyle = canvas.fillStyle = colour(tone);
      canvas.globalAlpha = 0.55;
      canvas.setLineDash([2, 4]);
      canvas.beginPath();
      canvas.moveTo(left, area.y + 12);
      canvas.lineTo(left, area.y + area.h);
      canvas.stroke();
      canvas.globalAlpha = 1;
      if (placed.some((other) => Math.abs(other - left) < 10)) continue;
      canvas.fillText(sign, left, area.y + 10);
      placed.push(left);
    }
    canvas.restore();
  }

  point(x, isSource) {
    const row = x === null ? null : this.nearest(x);
    if (!isSource && this.graph) {
      if (row === null) this.graph.clearSelection();
      else this.graph.setSelection(row);
    }
    this.showLegend(row);
  }

  nearest(x) {
    if (this.x.length === 0) return null;
    let [low, high] = [0, this.x.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.x[middle] <= x) low = middle; else high = middle;
    }
    return Math.abs(this.x[high] - x) < Math.abs(x - this.x[low]) ? high : low;
  }

  keyed(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (event.key === 'Escape') {
      this.group.zoom(null);
      this.group.point(null, null);
    }
    if (!step || this.x.length === 0) return;
    event.preventDefault();
    const at = this.group.at === null ? (step > 0 ? -1 : this.x.length) : this.nearest(this.group.at);
    this.group.point(this.x[Math.max(0, Math.min(this.x.length - 1, at + step))], null);
  }

  say(line, value) {
    const text = (line.format ?? number)(value, 4);
    const unit = line.unit ?? ((line.axis ?? 'y') === 'y' ? this.spec.unit : undefined);
    return unit && value !== null && !Number.isNaN(value) ? `${text} ${unit}` : text;
  }

  showLegend(row) {
    const events = row === null ? [] : this.group.marks.filter((mark) => this.nearest(mark.x) === row);
    const signs = new Set(events.map((mark) => ` ${mark.sign} ${mark.name}`));
    fill(this.at, row === null ? '' : [`step ${count(this.x[row])}`, ...signs]);
    fill(this.legend, this.lines.map((line) => {
      const {colour: paint, dash} = this.style(line);
      const value = row === null ? extremes(line.values.mid).last : line.values.mid[row];
      const swatch = this.spec.stacked ? 'block' : !dash ? 'solid' : dash[0] < 4 ? 'dotted' : 'dashed';
      return h('li', null, h('span', {class: `swatch ${swatch}`, style: {color: paint}}),
          h('span', {class: 'series'}, line.name), h('span', {class: 'value'}, (line.format ?? number)(value, 4)));
    }));
  }

  describe() {
    const parts = this.lines.map((line) => {
      const {last, min, max} = extremes(line.values.mid);
      return `${line.name}: last ${this.say(line, last)}, minimum ${this.say(line, min)}, ` +
        `maximum ${this.say(line, max)}`;
    });
    const steps = this.x.length > 0 ? ` Steps ${count(this.x[0])} to ${count(this.x.at(-1))}.` : '';
    return `Chart of ${this.spec.title}. ${parts.join('. ')}.${steps}`;
  }

  table() {
    const columns = [{title: 'Step', number: true, cell: (i) => count(this.x[i])},
      ...this.lines.map((line) => ({title: line.name, number: true,
        cell: (i) => (line.format ?? number)(line.values.mid[i], 5)}))];
    const unit = this.spec.unit ? `, in ${this.spec.unit}` : '';
    return simpleTable({caption: `Numbers of ${this.spec.title}${unit}`, columns},
        this.x.map((_, i) => this.x.length - 1 - i));
  }

  close() {
    this.seen.disconnect();
    this.size.disconnect();
    this.graph?.destroy();
    this.graph = null;
  }
}

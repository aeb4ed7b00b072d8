// Series of numbers over steps: brought to the same steps, smoothed, written as CSV.

// A number, or NaN for one that is none: a gap in a curve.
const known = (value) => (value === null || value === undefined ? NaN : value);

// {x: steps of all series, of: Map from name to {mid, low, high, exact}} of the API's answer. A step
// that a series lacks is null, which is no gap where points are connected over others' steps.
export function align(series) {
  const x = [...new Set(series.flatMap((one) => one.steps))].sort((a, b) => a - b);
  const place = new Map(x.map((step, i) => [step, i]));
  const of = new Map();
  for (const one of series) {
    if (one.steps.length === 0) continue;
    const spread = (values) => {
      const all = new Array(x.length).fill(null);
      one.steps.forEach((step, i) => { all[place.get(step)] = known(values[i]); });
      return all;
    };
    const mid = spread(one.mean);
    of.set(one.name, {mid, exact: one.exact, low: one.min ? spread(one.min) : mid,
      high: one.max ? spread(one.max) : mid});
  }
  return {x, of};
}

// Mean with its half interval above and below.
export function interval(mean, half) {
  if (!mean) return undefined;
  if (!half) return {...mean, low: mean.mid, high: mean.mid};
  const shift = (sign) => mean.mid.map((value, i) =>
    value === null ? null : value + sign * (Number.isFinite(half.mid[i]) ? half.mid[i] : 0));
  return {...mean, low: shift(-1), high: shift(1)};
}

// Exponential moving average, corrected for its begin; a gap stays one and does not count.
export function smooth(values, weight) {
  if (!(weight > 0)) return values;
  let sum = 0;
  let share = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

export function extremes(values) {
  const real = values.filter((value) => value !== null && Number.isFinite(value));
  if (real.length === 0) return null;
  return {last: real.at(-1), min: real.reduce((a, b) => Math.min(a, b)),
    max: real.reduce((a, b) => Math.max(a, b))};
}

const cell = (text) => (/[",\n\r]/.test(text) || /^[=+@-]/.test(text) && Number.isNaN(Number(text))
  ? `"${text.replaceAll('"', '""')}"` : text);

// One row a step, one column a series; empty where a series lacks the step.
export function csv(series) {
  const {x, of} = align(series);
  const names = [...of.keys()];
  const lines = [['step', ...names].map(cell).join(',')];
  x.forEach((step, i) => {
    const values = names.map((name) => {
      const value = of.get(name).mid[i];
      return value === null ? '' : String(value);
    });
    lines.push([step, ...values].join(','));
  });
  return `${lines.join('\n')}\n`;
}

export function offer(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], {type}));
  const anchor = document.createElement('a');
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// What colours a token: the values of an answer, and the scales that make colours of them (app.css).
import {h, note} from '/static/dom.js';
import {count, number, palette, plural} from '/static/format.js';

const plain = (name) => (values, i) => values[name][i];
const difference = (a, b) => (values, i) =>
  (values[a][i] === null || values[b][i] === null ? null : values[a][i] - values[b][i]);
const trainerLess = difference('old_log_probs', 'log_probs');
const ratio = (values, i) => {
  const logarithm = trainerLess(values, i);
  return logarithm === null ? null : Math.exp(logarithm);
};

// `needs`: the arrays of the answer. `scale`: how it colours; those without one stand in the panel only.
export const measures = [
  {key: 'log-prob', name: 'Log-prob', needs: ['log_probs'], scale: 'below', of: plain('log_probs'),
    says: 'Log-probability with which the rollout drew the token, in nats.'},
  {name: 'Trainer’s log-prob', needs: ['old_log_probs'], of: plain('old_log_probs')},
  {key: 'difference', name: 'Trainer − rollout', needs: ['old_log_probs', 'log_probs'], scale: 'around', of: trainerLess,
    says: 'The trainers’ log-prob minus that of the rollout, in nats.'},
  {key: 'ratio', name: 'Ratio', needs: ['old_log_probs', 'log_probs'], scale: 'factor', of: ratio,
    says: 'The trainers’ probability of the token over that of the rollout.'},
  {name: 'Training pass', needs: ['training_log_probs'], of: plain('training_log_probs')},
  {key: 'advantage', name: 'Advantage', needs: ['advantages'], scale: 'around', of: plain('advantages'),
    says: 'Training makes tokens above 0 more likely and those below 0 less likely.'},
  {key: 'is-weight', name: 'IS weight', needs: ['is_weights'], scale: 'factor', of: plain('is_weights'),
    says: 'Importance-sampling weight: a factor of the token’s loss.'},
  {name: 'Reference’s log-prob', needs: ['ref_log_probs'], of: plain('ref_log_probs')},
  {key: 'reference-kl', name: 'Reference KL', needs: ['log_probs', 'ref_log_probs'], scale: 'around',
    of: difference('log_probs', 'ref_log_probs'), says: 'The rollout’s log-prob minus that of the reference, in nats.'},
  {name: 'Sum of p²', needs: ['sum_pi_squared'], of: plain('sum_pi_squared')},
  {key: 'mask', name: 'Mask', needs: ['mask'], scale: 'classes', of: plain('mask'),
    says: 'A token whose mask is 0 is left out of the loss.'},
  {key: 'version', name: 'Weight version', needs: ['versions'], scale: 'classes', of: plain('versions'),
    says: 'The weights that drew the token.'},
];
export const absent = {
  old_log_probs: 'The trainers’ log-probs are not kept: actor.old_log_prob is not recompute.',
  ref_log_probs: 'There are no log-probs of a reference: no KL term asked for them.',
  is_weights: 'There are no importance-sampling weights: each is 1.',
  mask: 'No mask is kept.',
};

// Colours go to the value that 95 % of the tokens do not pass; those that do have a bar besides.
function numberScale(measure, list) {
  const factor = measure.scale === 'factor';
  const below = measure.scale === 'below';
  const [toDistance, toValue] = factor ? [Math.log, Math.exp] : [Number, Number];
  const sizes = list.map((x) => Math.abs(toDistance(x))).filter(Number.isFinite).sort((a, b) => a - b);
  const end = Math.max(sizes[Math.ceil(0.95 * sizes.length) - 1] || sizes.at(-1) || 0, below ? 1 : 0);
  const classes = (signed) => (signed === 0 ? 'shade' : `shade ${signed < 0 ? 'less' : 'more'} level${Math.abs(signed)}`);
  const middle = factor ? '1' : '0';
  if (end === 0) {
    return {classOf: () => 'shade', legend: [note(list.length > 0 ? `All are ${middle}.` : 'No token here has one.')]};
  }
  const classOf = (x) => {
    const share = Math.max(-1, Math.min(1, toDistance(x) / end));
    const signed = below ? Math.round(8 * share) : 2 * Math.round(4 * share);
    return classes(signed) + (Math.abs(toDistance(x)) > end ? ' beyond' : '');
  };
  const steps = [...Array(9).keys()].map((i) => (below ? i - 8 : 2 * i - 8));
  const [low, high] = [number(toValue(-end), 3), number(toValue(end), 3)];
  const ends = below ? [low, number(-end / 2, 3), '0'] : [low, middle, high];
  const passed = list.some((x) => Math.abs(toDistance(x)) > end);
  const bars = `A bar below a token: less than ${low}.${below ? '' : ` A bar above: more than ${high}.`}`;
  const label = `Colours from ${ends[0]} over ${ends[1]} to ${ends[2]}`;
  return {classOf, legend: [h('div', {class: 'token-scale', role: 'img', 'aria-label': label},
      steps.map((signed) => h('span', {class: classes(signed)}))),
  h('p', {class: 'ends'}, ends.map((text) => h('span', null, text))), passed ? note(bars) : null]};
}

function classScale(measure, list, versions) {
  const isMask = measure.key === 'mask';
  const classOf = (x) => {
    if (isMask) return x === 0 ? 'shade' : 'shade class2';
    const place = versions.indexOf(String(x));
    return `shade class${(place < 0 ? x : place) % palette.length}`;
  };
  const nameOf = (x) => (!isMask ? `version ${count(x)}`
    : `${number(x)}, ${x === 0 ? 'left out (struck through)' : 'trained'}`);
  const tally = new Map();
  for (const x of [...list].sort((a, b) => a - b)) tally.set(x, (tally.get(x) ?? 0) + 1);
  return {classOf, legend: [h('ul', {class: 'legend'}, [...tally].map(([x, n]) =>
    h('li', null, h('span', {class: `key ${classOf(x)}`}), `${nameOf(x)}: ${plural(n, 'token')}`)))]};
}

// `list`: the values of the window's tokens; `versions`: of the sample, in their order. A function from
// a value to its classes, and the legend.
export const scaleOf = (measure, list, versions) =>
  (measure.scale === 'classes' ? classScale(measure, list, versions) : numberScale(measure, list));

// One sample: its whole texts, its reward, the weights that made it, and the rest of its group.
import {fill, h, link, note, section, simpleTable, textNodes, tile} from '/static/dom.js';
import {count, ending, missing, number, palette, percent, time, toNumber} from '/static/format.js';

const dropped = 'The texts of this step are not kept any more; trainer.steps_with_texts says for how many steps they are.';

function textBlock(title, text, extra) {
  const copy = h('button', {type: 'button', class: 'quiet', onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      fill(copy, 'Copied');
    } catch {
      fill(copy, 'The browser does not allow it');
    }
  }}, 'Copy');
  return h('section', {class: 'textblock'}, h('div', {class: 'title'}, h('h2', null, title), h('span', {class: 'note'}, extra),
      copy), text === '' ? note('The text is empty.') : h('pre', {tabindex: '0', 'aria-label': title}, textNodes(text)));
}

// Runs of tokens with one weight version, as wide as they are long.
function segments(sample) {
  const list = sample.segments ?? [];
  if (list.length === 0) return note('Nothing is recorded about the weight versions within this response.');
  const total = list.reduce((sum, one) => sum + toNumber(one.length), 0);
  const versions = [...new Set(list.map((one) => one.weight_version))];
  const paint = (one) => `var(--${palette[versions.indexOf(one.weight_version) % palette.length]})`;
  const says = versions.length === 1 ? `All ${count(total)} tokens are of weight version ${count(versions[0])}.`
    : `The response was made by ${count(versions.length)} weight versions: it was carried from one step to the next.`;
  return [note(says), h('div', {class: 'phasebar', role: 'img', 'aria-label': list.map((one) =>
    `${count(one.length)} tokens of version ${one.weight_version}`).join(', ')},
  list.map((one) => h('span', {class: one.trained ? null : 'untrained', title: `version ${one.weight_version}`,
    style: {flexGrow: String(toNumber(one.length) / (total || 1)), background: paint(one)}}))),
  simpleTable({caption: 'Segments by weight version', columns: [
    {title: 'Weight version', cell: (one) =>
      [h('span', {class: 'swatch block', style: {color: paint(one)}}), count(one.weight_version)]},
    {title: 'First token', number: true, cell: (one) => count(one.begin)},
    {title: 'Tokens', number: true, cell: (one) => count(one.length)},
    {title: 'Trained', cell: (one) => one.trained ? '✓ yes' : '– no'}]}, list)];
}

const siblingsTable = (page, siblings, id) => simpleTable({caption: 'Samples of the same prompt', navigable: true,
  rowClass: (one) => one.sample_id === id ? 'current' : null, columns: [
    {title: 'Index', cell: (one) => one.sample_id === id ? h('strong', null, `▸ ${one.index} (this one)`)
      : link(page.address('samples', one.step, one.sample_id), `${one.group}·${one.index}`)},
    {title: 'Reward', number: true, cell: (one) => number(one.reward, 3)},
    {title: 'Advantage', number: true, cell: (one) => number(one.advantage, 3)},
    {title: 'Tokens', number: true, cell: (one) => count(one.response_tokens)},
    {title: 'End', cell: (one) => ending(one.finish_reason)},
    {title: 'Response', wide: true, cell: (one) =>
      h('span', {class: 'clip response'}, (one.response ?? '').slice(0, 400))}]}, siblings);

function tiles(sample, unknown) {
  const arrived = time(sample.arrived_at).split(' ');
  const length = unknown ? 'tokens' : `tokens after ${count(sample.prompt_tokens)} of the prompt`;
  const recorded = (value, says) => (value === undefined || value === '' ? 'not recorded' : says);
  return h('dl', {class: 'tiles'}, tile('Reward', number(sample.reward)),
      tile('Advantage', sample.evicted ? missing : number(sample.advantage)),
      tile('Length', count(sample.response_tokens), length), tile('End', ending(sample.finish_reason)),
      tile('Lowest log-prob', number(sample.min_log_prob, 3), recorded(sample.min_log_prob, 'nats, of the rollout')),
      tile('Repeated', percent(sample.repetition, 3), recorded(sample.repetition, 'of runs of four tokens')),
      tile('Arrived', arrived.at(-1), recorded(sample.arrived_at, arrived[0])));
}

function texts(sample, unknown) {
  if (sample.texts_dropped) return [note(dropped)];
  const made = `${count(sample.response_tokens)} tokens, end: ${ending(sample.finish_reason)}`;
  return [textBlock('Prompt', sample.prompt ?? '', unknown ? '' : `${count(sample.prompt_tokens)} tokens`),
    textBlock('Response', sample.response ?? '', made),
    sample.ground_truth ? textBlock('Ground truth', sample.ground_truth, '')
      : note('The data has no ground truth for this prompt.')];
}

// `unknown`: an older build recorded the sample, without what it knew of the prompt.
export async function show(page) {
  const [step, id] = page.parts;
  const tokens = import('/static/tokens.js');
  const {sample, siblings = []} = await page.ofRun(`/samples/${encodeURIComponent(step)}/${encodeURIComponent(id)}`);
  const family = [...siblings.filter((one) => one.sample_id !== sample.sample_id), sample]
      .sort((a, b) => toNumber(a.index) - toNumber(b.index));
  const at = family.indexOf(sample);
  const colour = page.query.get('colour');
  const alike = colour ? `?colour=${encodeURIComponent(colour)}` : '';
  const to = (one, name, sign) => one
    ? h('a', {class: 'button', href: page.address('samples', one.step, one.sample_id) + alike, [`data-${name}`]: true}, sign)
    : h('span', {class: 'button off'}, sign);
  const unknown = !(toNumber(sample.prompt_tokens) > 0);
  const terms = Object.entries(sample.reward_terms ?? {}).sort(([a], [b]) => a < b ? -1 : 1);
  const tokenSection = sample.evicted ? section('Tokens', note('They are kept of samples that were trained on.'))
    : await (await tokens).tokensOf(page, sample);
  page.root.append(h('div', {class: 'title'},
      h('h1', null, `Sample ${sample.group}·${sample.index} of step ${count(sample.step)}`),
      h('span', {class: 'steps'}, to(family[at - 1], 'previous', '‹ Previous'), to(family[at + 1], 'next', 'Next ›'),
          link(`${page.address('samples')}?step=${encodeURIComponent(sample.step)}`, 'Samples of the step'))),
  ...[toNumber(sample.undone_by) > 0 ? h('p', {class: 'alert warn'}, '⌫ A recovery has undone this sample.') : null,
    sample.evicted ? h('p', {class: 'alert warn'},
        '✕ Dynamic sampling dropped the group of this sample: it was not trained on.') : null,
  ].filter(Boolean),
  tiles(sample, unknown),
  h('div', {class: 'texts'}, ...texts(sample, unknown)),
  tokenSection,
  section('Reward terms', terms.length > 0 ? simpleTable({caption: 'Reward terms', columns: [
    {title: 'Term', wide: true, cell: ([name]) => name},
    {title: 'Value', number: true, cell: ([, value]) => number(value)}]}, terms)
    : note('The reward function gave no terms beside the reward.')),
  section('Weight versions', segments(sample)),
  section('Its group', family.length > 1 ? siblingsTable(page, family, sample.sample_id)
    : note('It is the only sample of its prompt.')));
  return {};
}

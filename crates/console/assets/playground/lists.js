// Lists whose items have fields: items are added and removed. Also tuples, whose items differ.

// Longer lists are edited as JSON: they are slow in browsers, and nobody fills them in by hand.
const mostItems = 100;

// One item, with its name and a button that removes it.
function entry(content, remove) {
  const legend = make('legend');
  const button = make('button', { type: 'button', className: 'quiet small', textContent: 'Remove' });
  const box = make('fieldset', { className: 'entry' }, legend, ...content, make('p', {}, button));
  button.addEventListener('click', remove);
  const call = (name) => { legend.textContent = name; button.ariaLabel = `Remove ${name}`; };
  return { box, call };
}

// A container for items, with a button that adds one.
function gathered(said, place, again) {
  const id = `field-${counter += 1}`;
  const jsonHint = makeJsonHint(id);
  const requiredHint = makeRequiredHint(id, place.name, ': add one');
  const inside = make('div');
  const add = make('button', { type: 'button', className: 'quiet small', textContent: 'Add one', ariaLabel: `Add one to ${visible(place.name)}` });
  const box = framed(said, place, inside, make('p', {}, add, ' ', jsonHint.box, requiredHint.box));
  requiredHint.at(add);
  add.setAttribute('aria-describedby', `${jsonHint.box.id} ${requiredHint.box.id}`);
  add.addEventListener('click', again);
  return { box, inside, add, jsonHint, requiredHint };
}

function series(said, place) {
  const { name, required, changed } = place;
  const items = [];
  // The current value: a list, which may be empty, or something that is not a list or too long.
  let odd;
  let isThere = false;
  const touch = () => { odd = undefined; isThere = true; jsonHint.show(undefined); requiredHint.show(''); changed(); };
  const called = (at) => visible(`${name || 'item'} ${at + 1}`);
  const number = () => items.forEach((item, at) => item.call(called(at)));
  const put = () => {
    const member = field(said.items, { ...place, name: called(items.length), required: true, changed: touch, depth: 0, room: { left: mostFields }, isBare: true });
    const item = { member, ...entry([member.box], () => {
      items.splice(items.indexOf(item), 1);
      item.box.remove();
      number();
      touch();
      add.focus();
    }) };
    items.push(item);
    inside.append(item.box);
    return item;
  };
  const cut = (count) => items.splice(count).forEach((item) => item.box.remove());
  const { box, inside, add, jsonHint, requiredHint } = gathered(said, place, () => {
    const item = put();
    number();
    touch();
    focusIn(item.box);
  });
  const has = () => odd !== undefined || isThere;
  const get = (isNew) => {
    if (odd !== undefined) return odd;
    if (!isThere) return isNew && required && said.canBeNull ? 'null' : undefined;
    return `[${items.map((item) => item.member.get(true)).filter((value) => value !== undefined).join(',')}]`;
  };
  const set = (text) => {
    const texts = text?.startsWith('[') ? itemsOf(text) : [];
    const isShown = text?.startsWith('[') && texts.length <= mostItems;
    isThere = isShown;
    odd = isShown ? undefined : text;
    // The form must not replace a list that is too long for it.
    add.hidden = texts.length > mostItems;
    cut(isShown ? texts.length : 0);
    if (isShown) texts.forEach((item, at) => (items[at] ?? put()).member.set(item));
    number();
    requiredHint.show('');
    jsonHint.show(odd !== undefined && isNothing(said, odd) ? undefined : odd);
  };
  const missing = () => {
    const least = isThere && typeof said.minItems === 'number' && items.length < said.minItems;
    const own = least ? requiredHint.ask(true, `${visible(name)}: at least ${said.minItems}`) : requiredHint.ask(required && get(true) === undefined);
    return [...own, ...(odd === undefined ? items.flatMap((item) => item.member.missing()) : [])];
  };
  return { box, has, get, set, missing };
}

// A tuple: each position has its own schema.
function tuple(said, place) {
  const { name, required, changed } = place;
  let odd;
  let more = [];
  const jsonHint = makeJsonHint(`field-${counter += 1}`);
  const touch = () => { odd = undefined; jsonHint.show(undefined); changed(); };
  const members = said.prefixItems.slice(0, mostItems).map((item, at) => field(item, { ...place, name: `${name} ${at + 1}`, required: true, changed: touch, isBare: false }));
  const box = framed(said, place, jsonHint.box, ...members.map((member) => member.box));
  const has = () => odd !== undefined || more.length > 0 || members.some((member) => member.has());
  const get = () => {
    if (odd !== undefined) return odd;
    if (!has()) return undefined;
    const all = [...members.map((member) => member.get(true)), ...more];
    while (all.length && all[all.length - 1] === undefined) all.pop();
    return `[${all.map((value) => value ?? 'null').join(',')}]`;
  };
  const set = (text) => {
    const isList = text?.startsWith('[');
    const texts = isList ? itemsOf(text) : [];
    odd = isList ? undefined : text;
    jsonHint.show(odd !== undefined && isNothing(said, odd) ? undefined : odd);
    more = texts.slice(members.length);
    members.forEach((member, at) => member.set(texts[at]));
  };
  const missing = () => (required || has() && odd === undefined ? members.flatMap((member) => member.missing()) : []);
  return { box, has, get, set, missing };
}

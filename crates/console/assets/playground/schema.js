// Interprets schemas as far as a form needs it.

// A schema with references resolved and `allOf` merged. An alternative that only allows `null` is removed and noted as
// `canBeNull`.
// A small schema can expand to a huge one, so the number of resolved parts is limited.
function meant(schema, root, depth = 0, parts = { left: 500 }) {
  if (!isObject(schema) || depth > 10 || parts.left <= 0) return {};
  parts.left -= 1;
  const { $ref: ref, ...said } = schema;
  if (typeof ref === 'string' && ref.startsWith('#')) {
    const target = referred(ref, root);
    return meant({ ...(isObject(target) ? target : {}), ...said }, root, depth + 1, parts);
  }
  if (Array.isArray(said.type) && said.type.includes('null')) said.canBeNull = true;
  if (Array.isArray(said.allOf)) {
    const { allOf, ...others } = said;
    return meant([...allOf.map((one) => meant(one, root, depth + 1, parts)), others].reduce(together, {}), root, depth + 1, parts);
  }
  for (const key of ['anyOf', 'oneOf']) {
    const { [key]: all, ...others } = said;
    if (!Array.isArray(all)) continue;
    const left = all.filter((one) => one?.type !== 'null');
    if (left.length < all.length) others.canBeNull = true;
    // A single choice must still be chosen, because it may be consent.
    if (left.length && left.every((one) => isObject(one) && 'const' in one)) return { ...others, oneOf: left };
    if (left.length === 1 && isObject(left[0])) return meant({ ...left[0], ...others }, root, depth + 1, parts);
    return { ...others, [key]: left };
  }
  return said;
}

// The schema that satisfies both.
function together(one, other) {
  const properties = { ...one.properties, ...other.properties };
  const required = [...new Set([one.required, other.required].filter(Array.isArray).flat())];
  return { ...one, ...other, ...(Object.keys(properties).length ? { properties } : {}), ...(required.length ? { required } : {}) };
}

function referred(ref, root) {
  const steps = ref.slice(1).split('/').slice(1).map((step) => { try { return decodeURIComponent(step); } catch { return step; } });
  return steps.map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~')).reduce((at, step) => at?.[step], root);
}

const kindOf = (said) => (Array.isArray(said.type) ? said.type.find((word) => word !== 'null') : said.type);
const isOneKind = (said) => !Array.isArray(said.type) || said.type.filter((word) => word !== 'null').length < 2;
const isObjectSchema = (said) => isOneKind(said) && (kindOf(said) === 'object' || said.type === undefined && isObject(said.properties));
const hasMembers = (said) => isObject(said.properties) && Object.keys(said.properties).length > 0;

// Whether a value needs fields of its own, not only one line of text.
function isComposite(said, root) {
  if (choicesOf(said)) return false;
  return isObjectSchema(said) || isOneKind(said) && kindOf(said) === 'array' || branchesOf(said, root) !== null;
}

// Whether each item of a list needs fields of its own, also if it may be a string or a number.
const isManifold = (said, root) => isComposite(said, root) || !choicesOf(said) && [said.anyOf, said.oneOf].some(Array.isArray);

// The types that a value may have, with their labels, if the user must choose. If all are plain, one field can
// distinguish them.
function branchesOf(said, root, depth = 0) {
  const all = [said.anyOf, said.oneOf].find(Array.isArray);
  if (!all || all.length < 2 || depth > 3) return null;
  const { anyOf, oneOf, canBeNull, title, description, default: usual, ...others } = said;
  const found = all.map((one) => ({ root, name: isObject(one) ? nameOf(one) : '', said: tagged(together(others, meant(one, root)), root) }));
  const isPlain = ({ said: one }) => choicesOf(one) || !isObjectSchema(one) && kindOf(one) !== 'array' && branchesOf(one, root, depth + 1) === null;
  if (found.every(isPlain)) return null;
  const titles = found.map((one) => one.name || titleOf(one.said, root));
  return found.map((one, at) => ({ ...one, title: titles.indexOf(titles[at]) === titles.lastIndexOf(titles[at]) ? titles[at] : `${titles[at]} (${at + 1})` }));
}

const nameOf = (one) => String(one.title ?? (typeof one.$ref === 'string' ? one.$ref.split('/').pop() : ''));

// A constant member distinguishes the types, so it is required even if the schema does not say so.
function tagged(said, root) {
  if (!isObject(said.properties)) return said;
  const tags = Object.entries(said.properties).filter(([, member]) => 'const' in meant(member, root)).map(([key]) => key);
  return tags.length ? { ...said, required: [...new Set([...(Array.isArray(said.required) ? said.required : []), ...tags])] } : said;
}

// The label of a type without a name.
function titleOf(said, root) {
  if (typeof said.title === 'string' && said.title) return said.title;
  const choices = choicesOf(said);
  if (choices) return choices.map((choice) => choice.title).join(', ');
  if (isObjectSchema(said)) {
    const members = Object.entries(isObject(said.properties) ? said.properties : {});
    const tags = members.map(([, member]) => meant(member, root)).filter((member) => 'const' in member).map((member) => plain(member.const));
    if (tags.length) return tags.join(', ');
    return members.length ? `with ${members.map(([key]) => key).slice(0, 4).join(', ')}` : 'names and values';
  }
  if (kindOf(said) === 'array') return `list of ${titleOf(meant(said.items, root), root)}`;
  return { string: 'text', integer: 'whole number', number: 'number', boolean: 'true or false' }[kindOf(said)] ?? 'anything';
}

// All types that a value may have; without a declaration, any.
function kindsOf(said, root) {
  const none = said.canBeNull ? ['null'] : [];
  if (said.type !== undefined) return [...[said.type].flat(), ...none];
  const all = [said.anyOf, said.oneOf].find(Array.isArray);
  if (!all) return [];
  return [...none, ...all.flatMap((one) => { const it = meant(one, root); return it.type === undefined ? [it.properties ? 'object' : 'any'] : [it.type].flat(); })];
}

// Whether a parsed value has one of the types.
function isOfKind(value, kinds) {
  const kind = value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
  return !kinds.length || kinds.includes('any') || kinds.includes(kind) || kind === 'number' && kinds.includes('integer') && Number.isInteger(value);
}

// The choices: values and their labels.
function choicesOf(said) {
  const named = [said.oneOf, said.anyOf].find((all) => Array.isArray(all) && all.length && all.every((one) => isObject(one) && 'const' in one));
  const values = Array.isArray(said.enum) ? said.enum : 'const' in said ? [said.const] : named?.map((one) => one.const);
  if (!values) return null;
  const titles = Array.isArray(said.enum) ? said.enumNames : named?.map((one) => one.title);
  return values.map((value, at) => ({ text: JSON.stringify(value), title: visible(String(titles?.[at] ?? plain(value))) }));
}

const plain = (value) => (typeof value === 'string' ? value : JSON.stringify(value));

// What a schema asks of a value beside its kind, in words.

const formats = {
  date: 'a date, as 2024-01-31', time: 'a time, as 12:30:00Z', 'date-time': 'a moment, as 2024-01-31T12:30:00Z', duration: 'a duration, as P1DT2H',
  email: 'an e-mail address', uri: 'an address, as https://example.org', uuid: 'a UUID',
};

function limitsOf(said) {
  const number = (key) => (typeof said[key] === 'number' ? said[key] : undefined);
  const span = (least, most, what, many = what) => {
    if (least !== undefined && most !== undefined) return least === most ? `exactly ${least}${least === 1 ? what : many}` : `${least} to ${most}${many}`;
    if (least !== undefined) return `at least ${least}${least === 1 ? what : many}`;
    return most === undefined ? '' : `at most ${most}${most === 1 ? what : many}`;
  };
  const some = (key) => (number(key) > 0 ? number(key) : undefined);
  return [
    typeof said.format === 'string' && kindOf(said) === 'string' ? formats[said.format] ?? said.format : '',
    span(number('minimum'), number('maximum'), ''),
    number('exclusiveMinimum') === undefined ? '' : `more than ${said.exclusiveMinimum}`,
    number('exclusiveMaximum') === undefined ? '' : `less than ${said.exclusiveMaximum}`,
    number('multipleOf') === undefined ? '' : `in steps of ${said.multipleOf}`,
    span(some('minLength'), number('maxLength'), ' character', ' characters'),
    typeof said.pattern === 'string' ? `like ${said.pattern.slice(0, 80)}` : '',
    span(some('minItems'), number('maxItems'), ' item', ' items'),
    said.uniqueItems === true ? 'none twice' : '',
  ].filter(Boolean);
}

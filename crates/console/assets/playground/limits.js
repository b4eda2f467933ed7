// The constraints of a schema besides the type, worded as on the tool's page.

const formats = {
  date: 'date, as 2024-01-31', time: 'time, as 12:00:00Z', 'date-time': 'date and time, as 2024-01-31T12:00:00Z',
  email: 'email address', uri: 'URL, as https://example.com', url: 'URL, as https://example.com',
};

function limitsOf(said) {
  const number = (key) => (typeof said[key] === 'number' ? said[key] : undefined);
  const between = (least, most, what) => {
    if (least !== undefined && most !== undefined) return `${least === most ? least : `${least} to ${most}`}${what}`;
    if (least !== undefined) return `at least ${least}${what}`;
    return most === undefined ? '' : `at most ${most}${what}`;
  };
  const some = (key) => (number(key) > 0 ? number(key) : undefined);
  return [
    typeof said.format === 'string' && kindOf(said) === 'string' ? formats[said.format] ?? said.format.slice(0, 40) : '',
    between(number('minimum'), number('maximum'), ''),
    number('exclusiveMinimum') === undefined ? '' : `more than ${said.exclusiveMinimum}`,
    number('exclusiveMaximum') === undefined ? '' : `less than ${said.exclusiveMaximum}`,
    number('multipleOf') === undefined ? '' : `in steps of ${said.multipleOf}`,
    between(some('minLength'), number('maxLength'), ' letters'),
    between(some('minItems'), number('maxItems'), ' items'),
    typeof said.pattern === 'string' ? `fitting ${said.pattern.slice(0, 80)}` : '',
  ].filter(Boolean);
}

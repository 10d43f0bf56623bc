// The keys of scenario files at a place in the text: their names, values and descriptions, from the JSON schema that
// editors elsewhere use, too.

/**
 * @typedef {{description?: string, type?: string|string[], properties?: Record<string, Schema>, items?: Schema,
 *   additionalProperties?: boolean|Schema, anyOf?: Schema[], enum?: (string|number)[], $ref?: string,
 *   required?: string[], $defs?: Record<string, Schema>}} Schema
 */

/** A part of a key such as `links.bottleneck.rate`; it can be quoted. */
const PART = /[\w-]+|"[^"]*"/g;

/** @param {string} text */
const parts = (text) => (text.match(PART) ?? []).map((part) => part.replaceAll('"', ""));

export class Keys {
  /** @param {Schema} root */
  constructor(root) {
    this.root = root;
  }

  /**
   * Returns the schemas of a path of keys. There are several where a key takes several kinds of values.
   * @param {string[]} path
   * @returns {Schema[]}
   */
  at(path) {
    let found = this.#kinds(this.root);
    for (const key of path) found = found.flatMap((schema) => this.#below(schema, key));
    return found;
  }

  /**
   * Returns the keys of the table at a path, with their descriptions.
   * @param {string[]} path
   * @returns {[string, Schema][]}
   */
  of(path) {
    return this.at(path).flatMap((schema) => Object.entries(schema.properties ?? {}));
  }

  /**
   * Returns the words that the key at a path takes.
   * @param {string[]} path
   * @returns {string[]}
   */
  values(path) {
    const found = this.at(path).flatMap((schema) => {
      if (schema.type === "boolean") return ["true", "false"];
      return (schema.enum ?? []).map((word) => JSON.stringify(word));
    });
    return [...new Set(found)];
  }

  /**
   * Returns the description of the key at a path.
   * @param {string[]} path
   */
  description(path) {
    const key = path[path.length - 1];
    const described = this.of(path.slice(0, -1)).find(([name, schema]) => name === key && schema.description);
    return described?.[1].description;
  }

  /** @param {Schema} schema @param {string} key @returns {Schema[]} */
  #below(schema, key) {
    const { properties, additionalProperties: others } = schema;
    const own = properties?.[key];
    if (own) return this.#kinds(own);
    return typeof others === "object" ? this.#kinds(others) : [];
  }

  /** Resolves references and alternatives; a list stands for its entries. @param {Schema} schema @returns {Schema[]} */
  #kinds(schema) {
    if (schema.$ref) {
      const target = this.root.$defs?.[schema.$ref.replace("#/$defs/", "")];
      return target ? this.#kinds(target) : [];
    }
    if (schema.anyOf) return schema.anyOf.flatMap((one) => this.#kinds(one));
    return schema.items ? this.#kinds(schema.items) : [schema];
  }
}

/**
 * @typedef {{path: string[], prefix: string, isValue: boolean}} Place A table, or a key whose value is written, and the
 *   text of the last word before the cursor.
 */

/**
 * Returns what is written at the end of a text.
 * @param {string} before The text before the cursor.
 * @returns {Place|null} Null within comments and within texts of several lines.
 */
export function place(before) {
  const lines = before.split("\n");
  const last = lines[lines.length - 1];
  if (/^\s*#/.test(last) || (before.match(/"""/g) ?? []).length % 2) return null;
  const header = last.match(/^\s*\[\[?([^\]]*)$/);
  if (header) {
    const all = header[1].split(".");
    return { path: parts(all.slice(0, -1).join(".")), prefix: all[all.length - 1].trim(), isValue: false };
  }
  const table = tableOf(lines);
  const steps = open(last);
  const path = [...table, ...steps.keys];
  return steps.isValue ? { path, prefix: steps.rest, isValue: true } : { path: [...path, ...parts(steps.rest.split(".").slice(0, -1).join("."))], prefix: steps.rest.split(".").slice(-1)[0].trim(), isValue: false };
}

/** Returns the path of the table in which the last line stands. @param {string[]} lines */
function tableOf(lines) {
  for (let line = lines.length - 2; line >= 0; line -= 1) {
    const header = lines[line].match(/^\s*\[\[?([^[\]]+)\]\]?\s*(#.*)?$/);
    if (header) return parts(header[1]);
  }
  return [];
}

/**
 * Follows a line through `key =`, `{` and `[` to its end.
 * @param {string} line
 * @returns {{keys: string[], rest: string, isValue: boolean}}
 */
function open(line) {
  /** The keys of each table that is open. @type {string[][]} */
  const open = [[]];
  let rest = "";
  let isValue = false;
  let isText = false;
  for (const letter of line) {
    if (letter === '"') isText = !isText;
    if (isText) {
      rest += letter;
      continue;
    }
    if (letter === "=") {
      open[open.length - 1] = parts(rest);
      [rest, isValue] = ["", true];
    } else if (letter === "{") {
      open.push([]);
      [rest, isValue] = ["", false];
    } else if (letter === "}") {
      open.pop();
      [rest, isValue] = ["", true];
    } else if (letter === "," && open.length > 1) {
      open[open.length - 1] = [];
      [rest, isValue] = ["", false];
    } else if (letter === "[" || letter === ",") rest = "";
    else rest += letter;
  }
  return { keys: open.flat(), rest: rest.trimStart(), isValue };
}

/**
 * Returns the path of the key at a column of the last line, and where the key begins and ends in the line.
 * @param {string[]} lines
 * @param {number} column
 * @returns {{path: string[], from: number, to: number}|null}
 */
export function keyAt(lines, column) {
  const line = lines[lines.length - 1];
  const words = [...line.matchAll(/[\w-]+/g)];
  const word = words.find(({ index, 0: text }) => index <= column && column <= index + text.length);
  if (!word) return null;
  const [from, to] = [word.index, word.index + word[0].length];
  const at = place([...lines.slice(0, -1), line.slice(0, to)].join("\n"));
  if (!at || at.isValue || at.prefix !== word[0]) return null;
  return { path: [...at.path, at.prefix], from, to };
}

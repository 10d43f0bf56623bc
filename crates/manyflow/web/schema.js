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
 * Returns the place at the end of a text.
 * @param {string} before The text before the cursor.
 * @returns {Place|null} Null within comments and within texts of several lines.
 */
export function place(before) {
  const lines = before.split("\n");
  const scan = new Scan();
  for (const line of lines.slice(0, -1)) scan.line(line);
  const last = lines[lines.length - 1];
  const header = scan.isBetween() && last.match(/^\s*\[\[?([^\]]*)$/);
  if (header) return { ...split(header[1]), isValue: false };
  scan.letters(last);
  const path = [...scan.table, ...scan.keys.flat()];
  const rest = scan.rest.trimStart();
  if (scan.within === "#" || scan.within === LONG) return null;
  if (scan.isValue) return { path, prefix: rest, isValue: true };
  const { path: more, prefix } = split(rest);
  return { path: [...path, ...more], prefix, isValue: false };
}

/** The line of a table's name. */
const HEADER = /^\s*\[\[?([\w. -]+)\]\]?\s*(#.*)?$/;
/** The quotes of a text of several lines. */
const LONG = '"""';
/** The beginnings of texts and comments. */
const QUOTES = [LONG, '"', "'", "#"];

/** Returns the path before the last dot, and the word behind it. @param {string} text */
function split(text) {
  const all = text.split(".");
  return { path: parts(all.slice(0, -1).join(".")), prefix: all[all.length - 1].trim() };
}

/** Follows tables, keys and values through a text. */
class Scan {
  /** The path of the table in which the next line stands. @type {string[]} */
  table = [];
  /** The brackets that are open. @type {string[]} */
  brackets = [];
  /** The key whose value is open, in each table that is open. @type {string[][]} */
  keys = [[]];
  /** The text behind the last sign. */
  rest = "";
  isValue = false;
  /** The quotes of a text, or `#` in a comment. */
  within = "";

  /** Whether the next line begins a key or a table. */
  isBetween() {
    return !this.within && !this.brackets.length;
  }

  /** @param {string} line */
  line(line) {
    const header = this.isBetween() ? line.match(HEADER) : null;
    if (header) this.table = parts(header[1]);
    else this.letters(line);
    if (this.within !== LONG) this.within = "";
    if (this.isBetween()) [this.keys, this.isValue] = [[[]], false];
    this.rest = "";
  }

  /** @param {string} text */
  letters(text) {
    for (const letter of text.match(/"""|[^]/g) ?? []) {
      if (this.within) {
        if (letter === this.within) this.within = "";
        this.rest += letter;
      } else if (QUOTES.includes(letter)) {
        this.within = letter;
        this.rest += letter;
      } else this.#sign(letter);
    }
  }

  /** @param {string} letter */
  #sign(letter) {
    const { brackets, keys } = this;
    if (letter === "=") {
      keys[keys.length - 1] = parts(this.rest);
      [this.rest, this.isValue] = ["", true];
    } else if (letter === "{" || letter === "[") {
      brackets.push(letter);
      if (letter === "{") keys.push([]);
      [this.rest, this.isValue] = ["", letter === "["];
    } else if (letter === "}" || letter === "]") {
      brackets.pop();
      if (letter === "}" && keys.length > 1) keys.pop();
      [this.rest, this.isValue] = ["", true];
    } else if (letter === ",") {
      const isKey = brackets[brackets.length - 1] === "{";
      if (isKey) keys[keys.length - 1] = [];
      [this.rest, this.isValue] = ["", !isKey];
    } else this.rest += letter;
  }
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

// Permalinks: the part of the address behind `#` holds the figure, or the whole text if it was edited.

/**
 * @typedef {{figure: string, text?: string, file?: string, cell: number, seed: number, fast: boolean}} State
 */

/** @param {Uint8Array} bytes */
function toBase64(bytes) {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** @param {string} text */
function fromBase64(text) {
  const decoded = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(decoded, (letter) => letter.charCodeAt(0));
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {CompressionStream|DecompressionStream} stream
 */
async function through(bytes, stream) {
  const piped = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(piped).arrayBuffer());
}

/**
 * Returns the fragment that stands for a state.
 * @param {State} state
 */
export async function encode(state) {
  const parts = new URLSearchParams({ figure: state.figure, cell: String(state.cell), seed: String(state.seed) });
  if (state.fast) parts.set("fast", "1");
  if (state.file) parts.set("file", state.file);
  if (state.text !== undefined) {
    const packed = await through(new TextEncoder().encode(state.text), new CompressionStream("deflate-raw"));
    parts.set("text", toBase64(packed));
  }
  return parts.toString();
}

/**
 * Returns the state that a fragment stands for, or null if it is none.
 * @param {string} fragment
 * @returns {Promise<State|null>}
 */
export async function decode(fragment) {
  const parts = new URLSearchParams(fragment.replace(/^#/, ""));
  const figure = parts.get("figure");
  if (figure === null) return null;
  const packed = parts.get("text");
  /** @type {string|undefined} */
  let text;
  try {
    if (packed !== null) text = new TextDecoder().decode(await through(fromBase64(packed), new DecompressionStream("deflate-raw")));
  } catch {
    return null;
  }
  return {
    figure,
    text,
    file: parts.get("file") ?? undefined,
    cell: Number(parts.get("cell")) || 0,
    seed: Number(parts.get("seed")) || 1,
    fast: parts.get("fast") === "1",
  };
}

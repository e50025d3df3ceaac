// Numbers in a page: deflated bytes in base64, in script elements that are data and never run.
//
// Probabilities are coded by their root, q = round(255 sqrt(p)): a linear code would lose a row of 512 small ones.

const PROBABILITIES = Float32Array.from({ length: 256 }, (_, code) => (code / 255) ** 2);

export function decodeRoot(bytes) {
  const result = new Float32Array(bytes.length);
  for (let at = 0; at < bytes.length; at += 1) result[at] = PROBABILITIES[bytes[at]];
  return result;
}

export function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

// Read chunk by chunk: by way of a Blob and a Response it takes twice as long.
export async function inflate(bytes) {
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  const [chunks] = await Promise.all([readAll(readable.getReader()), writer.write(bytes).then(() => writer.close())]);
  const result = new Uint8Array(chunks.reduce((size, chunk) => size + chunk.length, 0));
  let offset = 0;
  for (const chunk of chunks) {
    result.set(chunk, offset);
    offset += chunk.length;
  }
  return result;
}

async function readAll(reader) {
  const chunks = [];
  for (let next = await reader.read(); !next.done; next = await reader.read()) chunks.push(next.value);
  return chunks;
}

export async function readBlock(id) {
  return inflate(fromBase64(document.getElementById(id).textContent.trim()));
}

// Blocks are inflated when they are needed; the last few are kept.
export class Blocks {
  constructor(read, limit = 3) {
    this.read = read;
    this.limit = limit;
    this.kept = new Map();
  }

  get(id) {
    const kept = this.kept.get(id) ?? this.read(id);
    this.kept.delete(id);
    this.kept.set(id, kept); // the newest is last
    if (this.kept.size > this.limit) this.kept.delete(this.kept.keys().next().value);
    return kept;
  }
}

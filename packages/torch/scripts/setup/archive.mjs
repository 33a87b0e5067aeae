import { createHash } from "node:crypto";
import {
  createWriteStream,
  existsSync,
  mkdirSync,
  openSync,
  readSync,
  closeSync,
  renameSync,
  rmSync,
} from "node:fs";
import { createReadStream, fstatSync } from "node:fs";
import { dirname, join, normalize, sep } from "node:path";
import { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createInflateRaw } from "node:zlib";
import { cacheFolder } from "./libtorch.mjs";

/**
 * The official CPU archive, which the prebuilt engine is built for. Several projects that fetch the same file name this
 * checksum. Both can be replaced through ASTRA_RL_LIBTORCH_URL and ASTRA_RL_LIBTORCH_SHA256 (a mirror, another version).
 */
export const OFFICIAL = {
  version: "2.13.0",
  url: "https://download.pytorch.org/libtorch/cpu/libtorch-shared-with-deps-2.13.0%2Bcpu.zip",
  sha256: "edbf4cbed78433d803e90a65f1752e57783d164bce66c95c0872b2ab8f5c159e",
};

/**
 * Which archive to fetch.
 *
 * @returns {{ url: string, sha256: string } | { problem: string }}
 */
export function archiveSource(environment = process.env) {
  const url = environment.ASTRA_RL_LIBTORCH_URL;
  const sha256 = environment.ASTRA_RL_LIBTORCH_SHA256;
  if (!url) {
    if (process.platform === "linux" && process.arch === "x64") return OFFICIAL;
    return { problem: `there is no official archive for ${process.platform} on ${process.arch}` };
  }
  if (!/^[0-9a-f]{64}$/i.test(sha256 ?? "")) {
    return {
      problem: "ASTRA_RL_LIBTORCH_URL is set without ASTRA_RL_LIBTORCH_SHA256 (64 hexadecimal digits)",
    };
  }
  return { url, sha256: sha256.toLowerCase() };
}

/** Where an archive is unpacked, for all projects of a user. */
export const archiveFolder = ({ sha256 }, environment = process.env) =>
  join(cacheFolder(environment), `libtorch-${sha256.slice(0, 12)}`);

/**
 * Downloads an archive, checks its SHA-256 and unpacks it atomically to `folder`.
 *
 * @param {{ url: string, sha256: string }} source
 * @param {string} folder
 * @param {(line: string) => void} say
 */
export async function fetchArchive({ url, sha256 }, folder, say) {
  const partial = `${folder}.partial-${process.pid}`;
  const file = `${partial}.zip`;
  mkdirSync(dirname(folder), { recursive: true });
  try {
    const actual = await download(url, file, say);
    if (actual !== sha256) {
      throw new Error(
        `${url} has SHA-256 ${actual}, expected ${sha256}: the file was changed or cut on its way`,
      );
    }
    say("unpacking libtorch");
    await unzip(file, partial);
    if (existsSync(folder)) rmSync(folder, { recursive: true });
    renameSync(partial, folder);
  } finally {
    rmSync(file, { force: true });
    rmSync(partial, { recursive: true, force: true });
  }
}

async function download(url, file, say) {
  const response = await fetch(url).catch((error) => {
    throw new Error(`${url} cannot be reached (${error.cause?.message ?? error.message})`, { cause: error });
  });
  if (!response.ok || response.body === null) throw new Error(`${url} answered ${response.status}`);
  const total = Number(response.headers.get("content-length") ?? 0);
  const digest = createHash("sha256");
  let received = 0;
  let tenths = 0;
  const watch = new Transform({
    transform(chunk, _encoding, done) {
      digest.update(chunk);
      received += chunk.length;
      const reached = total > 0 ? Math.floor((10 * received) / total) : 0;
      if (reached > tenths) say(`fetching libtorch: ${reached * 10} % of ${Math.round(total / 1e6)} MB`);
      tenths = reached;
      done(null, chunk);
    },
  });
  await pipeline(Readable.fromWeb(response.body), watch, createWriteStream(file)).catch((error) => {
    throw new Error(`${url} broke off after ${received} bytes (${error.message})`, { cause: error });
  });
  return digest.digest("hex");
}

/**
 * Unpacks a zip file: stored and deflated entries, no encryption, no zip64. Written here because a bare Debian has
 * neither unzip nor Python, and set-up must not depend on a package.
 *
 * @param {string} file
 * @param {string} folder
 */
export async function unzip(file, folder) {
  const handle = openSync(file, "r");
  try {
    for (const entry of centralDirectory(handle)) {
      const path = normalize(join(folder, entry.name));
      if (!path.startsWith(normalize(folder) + sep))
        throw new Error(`${file}: the entry ${entry.name} leaves the folder`);
      if (entry.name.endsWith("/")) {
        mkdirSync(path, { recursive: true });
        continue;
      }
      mkdirSync(dirname(path), { recursive: true });
      const start = entry.offset + 30 + localHeaderTail(handle, entry.offset);
      if (entry.compressedSize === 0) {
        await pipeline(Readable.from([]), createWriteStream(path));
        continue;
      }
      const bytes = createReadStream(file, { start, end: start + entry.compressedSize - 1 });
      if (entry.method === 0) await pipeline(bytes, createWriteStream(path));
      else if (entry.method === 8) await pipeline(bytes, createInflateRaw(), createWriteStream(path));
      else throw new Error(`${file}: the entry ${entry.name} uses compression ${entry.method}`);
    }
  } finally {
    closeSync(handle);
  }
}

function read(handle, position, length) {
  const buffer = Buffer.alloc(length);
  const count = readSync(handle, buffer, 0, length, position);
  return buffer.subarray(0, count);
}

/** Lengths of the name and the extra field between a local header and its data. */
function localHeaderTail(handle, offset) {
  const header = read(handle, offset, 30);
  if (header.length < 30 || header.readUInt32LE(0) !== 0x04034b50)
    throw new Error("a zip entry has no local header");
  return header.readUInt16LE(26) + header.readUInt16LE(28);
}

function centralDirectory(handle) {
  const { size } = fstatSync(handle);
  // The end record is at the end, before a comment of at most 65,535 bytes.
  const tailStart = Math.max(0, size - 22 - 65_535);
  const tail = read(handle, tailStart, size - tailStart);
  const at = tail.lastIndexOf(Buffer.from([0x50, 0x4b, 0x05, 0x06]));
  if (at < 0) throw new Error("not a zip file: it has no end record");
  const count = tail.readUInt16LE(at + 10);
  const start = tail.readUInt32LE(at + 16);
  if (count === 0xffff || start === 0xffffffff) throw new Error("zip64 archives are not read here");
  const directory = read(handle, start, tail.readUInt32LE(at + 12));
  const entries = [];
  let position = 0;
  for (let index = 0; index < count; index += 1) {
    if (position + 46 > directory.length || directory.readUInt32LE(position) !== 0x02014b50) {
      throw new Error("the zip file's directory is cut short");
    }
    const nameLength = directory.readUInt16LE(position + 28);
    entries.push({
      method: directory.readUInt16LE(position + 10),
      compressedSize: directory.readUInt32LE(position + 20),
      offset: directory.readUInt32LE(position + 42),
      name: directory.toString("utf8", position + 46, position + 46 + nameLength),
    });
    position +=
      46 + nameLength + directory.readUInt16LE(position + 30) + directory.readUInt16LE(position + 32);
  }
  return entries;
}

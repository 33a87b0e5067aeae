import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));

/** What VitePress reads: docs/ with links that hold in a site, and the pages that only the site has. */
export const PAGES_FOLDER = join(ROOT, ".cache", "site-pages");

/** The built site. */
export const SITE_FOLDER = join(ROOT, ".cache", "site");

/** Where the pages of the gallery lie between builds of the site, since they take minutes to make. */
export const GALLERY_FOLDER = join(ROOT, ".cache", "gallery");

/** Where the site lies on its server, with slashes at both ends; a project page of GitHub has its name here. */
export const BASE = process.env.SITE_BASE ?? "/";

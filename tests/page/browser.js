// A headless Chromium. Its pages record their problems.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** Starts a browser without history. */
export async function launch() {
  const folder = await mkdtemp(join(tmpdir(), 'playhouse-page-'));
  const contexts = [];
  return {
    /** Opens a page at `url` in a context of its own. */
    async open(url, { width = 1280, height = 800, ...options } = {}) {
      const context = await chromium.launchPersistentContext(join(folder, String(contexts.length)), {
        executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
        args: FLAGS,
        viewport: { width, height },
        ...options,
      });
      contexts.push(context);
      const page = context.pages()[0] ?? await context.newPage();
      page.problems = [];
      page.setDefaultTimeout(30_000);
      page.on('console', (message) => {
        if (message.type() === 'error') page.problems.push(message.text());
      });
      page.on('pageerror', (error) => page.problems.push(error.stack));
      page.on('request', (request) => {
        const to = request.url();
        const isOwn = [url, `blob:${url}`, 'data:'].some((start) => to.startsWith(start));
        if (!isOwn) page.problems.push(`it asked for ${to}`);
      });
      await page.goto(`${url}/`);
      return page;
    },
    async close() {
      await Promise.all(contexts.map((context) => context.close()));
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Waits until `check` returns a truthy value. Returns the value. */
export async function until(what, check, limitMs = 30_000) {
  const end = Date.now() + limitMs;
  for (;;) {
    const found = await check();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not within ${limitMs} ms: ${what}`);
    await new Promise((wake) => setTimeout(wake, 50));
  }
}

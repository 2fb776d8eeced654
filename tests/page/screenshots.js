// Pictures of all views under load, in light and dark, on a desktop and on a phone.

import { mkdir, stat } from 'node:fs/promises';
import { join } from 'node:path';

const BYTES_MAX = 220_000;
/** The time until the plots have a shape. */
const LOOK_MS = 25_000;

const PICTURES = [
  { name: 'chat-light', view: 'chat', colorScheme: 'light' },
  { name: 'house-light', view: 'house', colorScheme: 'light', strike: ['streamer/1', 'worker/0'] },
  { name: 'house-dark', view: 'house', colorScheme: 'dark' },
  { name: 'memory-light', view: 'memory', colorScheme: 'light' },
  { name: 'traffic-dark', view: 'traffic', colorScheme: 'dark' },
  { name: 'house-phone', view: 'house', colorScheme: 'light', width: 360, height: 1100 },
];

/** Writes the pictures into `folder`. Throws if one is too large. */
export async function screenshots(folder, { open, load, go, converse }) {
  await mkdir(folder, { recursive: true });
  const stop = load();
  try {
    for (const { name, view, strike = [], ...options } of PICTURES) {
      const page = await open(options);
      if (view === 'chat') {
        await page.fill('#max_tokens', '160');
        await page.check('#logprobs');
        await converse(page, 'What is Playhouse?');
        await page.uncheck('#logprobs');
        await converse(page, 'Tell me a short story');
        await page.click('#new');
        await converse(page, 'Who are you?');
        await page.locator('#conversations .open').nth(1).click();
        await page.locator('.message.assistant').nth(1).waitFor();
      } else {
        await go(page, view);
        if (view === 'traffic') await page.waitForTimeout(LOOK_MS);
        await page.waitForTimeout(2_000);
        for (const room of strike) await page.locator(`[data-kill="${room}"]`).click();
        if (strike.length) await page.waitForTimeout(1_500);
      }
      const path = join(folder, `${name}.png`);
      await page.screenshot({ path });
      const { size } = await stat(path);
      if (size > BYTES_MAX) throw new Error(`${path} has ${size} bytes`);
      await page.close();
    }
  } finally {
    await stop();
  }
}

// What the tests share: a browser, and pages of it.
import { createRequire } from 'node:module';
import { after } from 'node:test';
import { chromium } from 'playwright-core';

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-dev-shm-usage'] });
after(() => browser.close());

const AXE = createRequire(import.meta.url).resolve('axe-core');

/** Opens a page at an address. `page.faults` collects what its scripts and its policy complain of. */
export async function open(base, { width = 1280, height = 800, scheme = 'light', locale = 'en-GB' } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, locale, bypassCSP: false });
  const page = await context.newPage();
  page.faults = [];
  page.setDefaultTimeout(10_000);
  page.on('pageerror', (error) => page.faults.push(error.message));
  page.on('console', (message) => message.text().includes('Content Security Policy') && page.faults.push(message.text()));
  page.on('request', (request) => request.url().startsWith(base) || request.url().startsWith('data:') || page.faults.push(`foreign: ${request.url()}`));
  await page.goto(base);
  return page;
}

/** Fills the form to sign in. */
export async function signIn(page, name, password) {
  await page.getByLabel('User name').fill(name);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
}

/** Opens a page of the dashboard by its name in the address. */
export async function visit(page, name) {
  await page.evaluate((hash) => { location.hash = hash; }, `#/${name}`);
}

/** Returns what axe finds serious or critical. */
export async function inaccessible(page) {
  // The policy of the page allows no script from elsewhere; the debugger may run one.
  await page.evaluate(`${(await import('node:fs')).readFileSync(AXE, 'utf8')};0`);
  // What still fades in has less contrast than it will have.
  await page.evaluate(() => Promise.allSettled(document.getAnimations().map(({ finished }) => finished)).then(() => null));
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }));
  return violations.filter(({ impact }) => ['serious', 'critical'].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 140)).join(' | ')}`);
}

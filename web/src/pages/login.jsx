// The page to sign in, and what to do where no one can yet.
import { useEffect, useState } from 'preact/hooks';
import { call, keepToken } from '../api.js';
import { Field, Form } from '../parts.jsx';
import { text } from '../text.js';

const words = text.login;

/** The password is right, and a code is needed, too. */
const CODE_NEEDED = 'urn:millrace:code-needed';

/** Returns why signing in failed. */
function reason(problem, withToken) {
  if (problem.body.type === CODE_NEEDED) return words.codeNeeded;
  if (problem.status === 401) return withToken ? words.wrongToken : words.wrong;
  if (problem.status === 429) return words.slow;
  return problem.status === 0 ? text.unreachable : problem.message;
}

/** Returns why the provider of logins has sent the browser back without a login, as the address says, and forgets it. */
function returned() {
  const [, why] = location.hash.match(/[?&]login=(\w+)/) ?? [];
  if (!why) return '';
  history.replaceState(null, '', '/');
  return words.returned[why] ?? words.returned.failed;
}

function FirstRun() {
  return (
    <section class="first-run">
      <h2>{words.firstTitle}</h2>
      <p>{words.first}</p>
      <pre>millrace ctl token add admin --role administrator</pre>
      <p>{words.firstThen}</p>
      <pre>admin-administrators = ["alice"]</pre>
    </section>
  );
}

export function Login({ hint, enter }) {
  const [withToken, setWithToken] = useState(Boolean(hint));
  const [fault, setFault] = useState(returned);
  const [hasProvider, setHasProvider] = useState(false);
  const [needsCode, setNeedsCode] = useState(false);
  useEffect(() => { call('GET', 'login', { isLogin: true }).then(({ oidc }) => setHasProvider(oidc), () => {}); }, []);
  const goToProvider = async () => {
    setFault('');
    try {
      const { url } = await call('POST', 'login/oidc', { isLogin: true });
      location.assign(url);
    } catch (problem) {
      setFault(problem.status === 502 ? words.noProvider : reason(problem));
    }
  };
  const submit = async ({ name, password, code, token }) => {
    setFault('');
    try {
      keepToken(token?.trim());
      await (token ? call('GET', 'me', { isLogin: true }) : call('POST', 'login', { isLogin: true, body: { name, password, ...(code && { code }) } }));
      await enter();
    } catch (problem) {
      keepToken(null);
      if (problem.body.type === CODE_NEEDED) setNeedsCode(true);
      setFault(reason(problem, Boolean(token)));
    }
  };
  return (
    <main class="login">
      <h1>{text.appName}</h1>
      {hint && <FirstRun />}
      <Form onSubmit={submit} aria-label={words.title}>
        {withToken ? <Field label={words.token} name="token" type="password" required key="token" /> : (
          <>
            <Field label={words.name} name="name" autocomplete="username" required autofocus />
            <Field label={words.password} name="password" type="password" autocomplete="current-password" required />
            {needsCode && <Field label={words.code} name="code" inputmode="numeric" autocomplete="one-time-code" required autofocus />}
          </>)}
        {fault && <p class="trouble" role="alert">{fault}</p>}
        <button type="submit" class="primary">{words.submit}</button>
        {hasProvider && <button type="button" onClick={goToProvider}>{words.useProvider}</button>}
        <button type="button" class="link" onClick={() => setWithToken(!withToken)}>{withToken ? words.usePassword : words.useToken}</button>
      </Form>
    </main>
  );
}

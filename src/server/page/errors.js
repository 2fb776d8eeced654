// What went wrong, in words for people. The server's own words follow as details.

const KNOWN = [
  [({ name }) => name === 'NetworkError', 'The server cannot be reached', 'It may have ended, or the network is gone. Your question is kept.'],
  [({ name }) => name === 'StreamEnded', 'The answer broke off', 'The connection ended before the answer did. The text so far is kept.'],
  [({ status }) => status === 401, 'The server wants another key', 'Try again, and enter the key that its operator gave you.'],
  [({ status }) => status === 403, 'The server does not allow this', 'Your key has no right to it.'],
  [({ status, message }) => status === 400 && /context length|max_model_len|too long|longer than/i.test(message),
    'The conversation is too long for this model', 'Begin a new conversation, shorten this one, or lower Max tokens.'],
  [({ status, message }) => status === 400 && /tool/i.test(message), 'The server cannot use these tools', 'See Tools under Advanced.'],
  [({ status, message }) => status === 400 && /schema|grammar|response_format/i.test(message), 'The server cannot use this JSON schema', 'See JSON schema under Advanced.'],
  [({ status }) => status === 404, 'The server does not have this model', 'Choose another under Settings.'],
  [({ status }) => status === 413, 'The message is too large', 'Send smaller files, or fewer.'],
  [({ status }) => status === 429, 'The server has too much to do', 'Wait a moment, then try again.'],
  [({ status }) => status === 408 || status === 504, 'The answer took too long', 'The server gave up. Try again, or ask for less.'],
  [({ status }) => status === 503, 'The server is not ready', 'It starts, recovers or ends. Try again in a moment.'],
  [({ status }) => status >= 400 && status < 500, 'The server did not accept the question', 'The reason is below.'],
  [({ status }) => status >= 500, 'Something broke on the server', 'It recovers by itself. Try again.'],
];

/** Returns an error as `{ title, advice, detail }`, all of them text, with the status of the answer. */
export function explain(error) {
  const found = KNOWN.find(([fits]) => fits(error));
  const [, title, advice] = found ?? [null, 'That did not work', 'The reason is below.'];
  return { title, advice, detail: error.message, status: error.status };
}

export const de = undefined;

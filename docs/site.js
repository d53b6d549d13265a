// In a search, a "-" before a word means "without this word", and "--seed" is an error. So are ":", "^" and "~".
document.addEventListener("keyup", ({target}) => {
  if (target.name !== "query") return;
  const words = target.value.replace(/(^|\s)-+/g, "$1").replace(/[:^~]/g, " ");
  if (words !== target.value) target.value = words;
}, true);

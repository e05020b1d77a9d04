const hash = new URLSearchParams(location.hash.slice(1));
if (hash.has("token")) {
  sessionStorage.setItem("token", hash.get("token"));
  history.replaceState(null, "", location.pathname + location.search);
}

async function ask(path, options = {}) {
  for (let attempt = 0; ; attempt++) {
    const token = sessionStorage.getItem("token");
    const headers = {...options.headers, ...(token ? {Authorization: `Bearer ${token}`} : {})};
    const response = await fetch(path, {...options, headers});
    const seconds = Number(response.headers.get("retry-after"));  // 0: it will not work later either
    if (response.status === 401) {
      await login();
    } else if (response.status === 503 && seconds && attempt < 30) {
      await new Promise((done) => setTimeout(done, 1000 * seconds * (0.7 + 0.6 * Math.random())));
    } else {
      return response;
    }
  }
}

let asking = null;
function login() {
  asking ??= new Promise((done) => {
    const dialog = $("login");
    dialog.addEventListener("close", () => {
      sessionStorage.setItem("token", $("token").value.trim());
      asking = null;
      done();
    }, {once: true});
    dialog.showModal();
  });
  return asking;
}

async function detail(response) {
  try { return (await response.json()).detail ?? response.statusText; } catch { return response.statusText; }
}

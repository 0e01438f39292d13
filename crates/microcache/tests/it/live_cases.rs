//! What `live.js` leaves alone, in a real browser: pages with something typed, chosen, focused or changed by scripts, before
//! and after the server says something else. Each page shows its case, tells what came of it, and leads to the next one.

use crate::support::{Browser, Origin, Reply};

const SCRIPT_PATH: &str = "/.well-known/microcache/live.js";
const SCRIPT: &str = include_str!("../../../push/src/live.js");

/// What cases are said in. Time goes fifty times as fast, so that the page asks ten times a second.
const WORDS: &str = "
    for (const name of ['setTimeout', 'setInterval']) {
        const real = window[name];
        window[name] = (act, time, ...more) => real(act, time / 50, ...more);
    }
    const q = (id) => document.getElementById(id), qs = (what) => document.querySelector(what);
    const qsa = (what) => [...document.querySelectorAll(what)];
    const markel = (it) => (it.m = 1), mark = (id) => markel(q(id)), kept = (id) => q(id)?.m === 1;
    const active = (id) => document.activeElement === q(id);
    const type = (text) => document.execCommand('insertText', false, text);
    const order = (...ids) => ids.every((id, i) => !i || q(ids[i - 1]).compareDocumentPosition(q(id)) & 4);";

/// What it is about, the page, what happens in it, the page as it is then, and what holds when it shows that.
type Case = [&'static str; 5];

const CASES: &[Case] = &[
    [
        "swapped",
        "<div><input id=f value=abc><input id=o></div>",
        "q('f').focus();q('f').setSelectionRange(1,2);mark('f')",
        "<div><input id=o><input id=f value=abc></div>",
        "kept('f')&&active('f')&&q('f').selectionStart==1&&order('o','f')",
    ],
    [
        "sibling moves past typed",
        "<p id=a>a</p><p id=b>b</p><input id=f><p id=c>c</p>",
        "q('f').focus();type('words');mark('f');mark('c')",
        "<p id=c>c</p><input id=f><p id=b>b</p><p id=a>a</p>",
        "kept('f')&&kept('c')&&active('f')&&q('f').value=='words'&&order('c','f','b','a')",
    ],
    [
        "previous replaced",
        "<div><a></a><input id=f></div>",
        "q('f').focus();mark('f')",
        "<div><b></b><input id=f></div>",
        "kept('f')&&active('f')&&!!document.querySelector('div b')&&!document.querySelector('div a')",
    ],
    [
        "to another level",
        "<div><input id=o><div><input id=f value=abc></div></div>",
        "q('f').focus();type('x');mark('f')",
        "<div><input id=o><input id=f value=abc></div>",
        "kept('f')&&active('f')&&q('f').value.includes('x')&&q('f').parentNode==q('o').parentNode",
    ],
    [
        "between containers",
        "<div id=l><input id=f></div><div id=r><input id=o></div>",
        "q('f').focus();type('x');mark('f');mark('l')",
        "<div id=l><input id=o></div><div id=r><input id=f></div>",
        "kept('f')&&kept('l')&&active('f')&&q('f').value=='x'&&q('r').contains(q('f'))&&q('l').contains(q('o'))",
    ],
    [
        "anonymous containers",
        "<div><input id=o></div><div><input id=f></div>",
        "q('f').focus();type('x');mark('f')",
        "<div><input id=o><input id=f></div>",
        "kept('f')&&active('f')&&q('f').value=='x'&&document.querySelectorAll('div').length==1",
    ],
    [
        "parent moved down",
        "<div id=w><input id=f></div><div id=v><input id=o></div>",
        "q('f').focus();mark('f')",
        "<div id=v><input id=o></div><div id=w><input id=f></div>",
        "kept('f')&&active('f')&&order('v','w')",
    ],
    [
        "matching anonymous inserted",
        "<section><div><input id=f></div></section>",
        "q('f').focus();type('x');mark('f')",
        "<section><div><i>new</i></div><div><input id=f></div></section>",
        "kept('f')&&active('f')&&q('f').value=='x'&&document.querySelectorAll('section>div').length==2",
    ],
    [
        "anonymous field, item before",
        "<ul><li><input class=q></li></ul>",
        "qs('.q').focus();type('x');markel(qs('.q'))",
        "<ul><li>new <b>one</b></li><li><input class=q></li></ul>",
        "qs('.q').m&&qs('.q').value=='x'&&document.activeElement==qs('.q')&&qs('ul').children.length==2",
    ],
    [
        "anonymous prepended",
        "<section><a>A</a><a>B</a></section>",
        "qsa('a').forEach(markel)",
        "<section><a>New</a><a>A</a><a>B</a></section>",
        "qsa('a').map(x=>x.textContent+!!x.m).join()=='Newfalse,Atrue,Btrue'",
    ],
    [
        "anonymous removed in front",
        "<section><a>A</a><a>B</a><a>C</a></section>",
        "qsa('a').forEach(markel)",
        "<section><a>B</a><a>C</a></section>",
        "qsa('a').map(x=>x.textContent+!!x.m).join()=='Btrue,Ctrue'",
    ],
    [
        "anonymous reordered",
        "<div><a>A</a><b>B</b><i>C</i></div>",
        "qsa('div>*').forEach(markel)",
        "<div><i>C</i><b>B</b><a>A</a></div>",
        "qsa('div>*').map(x=>x.textContent+!!x.m).join()=='Ctrue,Btrue,Atrue'",
    ],
    [
        "ids reordered",
        "<div><a id=a>A</a><b id=b>B</b><i id=c>C</i></div>",
        "qsa('div>*').forEach(markel)",
        "<div><i id=c>C</i><b id=b>B</b><a id=a>A</a></div>",
        "qsa('div>*').map(x=>x.id+!!x.m).join()=='ctrue,btrue,atrue'",
    ],
    [
        "wrapped",
        "<main><hr id=a></main>",
        "mark('a')",
        "<main><div><hr id=a></div></main>",
        "kept('a')&&q('a').parentNode.nodeName=='DIV'&&qsa('hr').length==1",
    ],
    [
        "unwrapped",
        "<main><div><input id=f></div></main>",
        "q('f').focus();type('x');mark('f')",
        "<main><input id=f></main>",
        "kept('f')&&q('f').value=='x'&&active('f')&&q('f').parentNode.nodeName=='MAIN'&&!qs('div')",
    ],
    [
        "turned inside out",
        "<main><div id=a><div id=b><i>x</i></div></div></main>",
        "mark('a');mark('b')",
        "<main><div id=b><div id=a></div><i>x</i></div></main>",
        "kept('a')&&kept('b')&&q('b').contains(q('a'))&&qsa('i').length==1&&q('b').parentNode.nodeName=='MAIN'",
    ],
    [
        "from the future",
        "<div><div id=c><div id=i>x</div></div></div>",
        "mark('i');mark('c')",
        "<div><div id=i>x</div><div id=c></div></div>",
        "kept('i')&&kept('c')&&order('i','c')&&!q('c').contains(q('i'))",
    ],
    [
        "restored then moved into",
        "<div><a id=a></a><br><b id=b></b></div>",
        "mark('a');mark('b')",
        "<div><br><a id=a><b id=b></b></a></div>",
        "kept('a')&&kept('b')&&q('a').contains(q('b'))&&qsa('br').length==1",
    ],
    [
        "container of another kind",
        "<div><form><input id=f></form></div>",
        "q('f').focus();type('x');mark('f')",
        "<section><form><input id=f></form></section>",
        "kept('f')&&q('f').value=='x'&&active('f')&&!!qs('section')&&!qs('div')",
    ],
    [
        "field with a name",
        "<p>1</p><div><input name=q></div>",
        "qs('input').focus();type('x');markel(qs('input'))",
        "<p>2</p><section><input name=q></section>",
        "qs('input').m&&qs('input').value=='x'&&document.activeElement.name=='q'",
    ],
    [
        "chosen select",
        "<select id=s><option>1<option>2</select>",
        "q('s').value='2';q('s').dispatchEvent(new Event('input',{bubbles:true}))",
        "<select id=s><option>0<option>1<option selected>3<option>2</select>",
        "q('s').value=='2'&&[...q('s').options].map(o=>o.value).join()=='0,1,3,2'",
    ],
    [
        "select that nobody chose",
        "<select id=s><option selected>1<option>2</select>",
        "",
        "<select id=s><option>1<option selected>2</select>",
        "q('s').value=='2'",
    ],
    [
        "after a reset",
        "<form id=x><input id=f value=1><textarea id=t>1</textarea><select id=s><option selected>1<option>2</select></form>",
        "q('f').focus();type('w');q('t').focus();type('w');q('s').value='2';q('s').dispatchEvent(new Event('input',{bubbles:true}));q('x').reset()",
        "<form id=x><input id=f value=2><textarea id=t>2</textarea><select id=s><option>1<option selected>3<option>2</select></form>",
        "q('f').value=='2'&&q('t').value=='2'&&q('s').value=='3'",
    ],
    [
        "typed stays",
        "<p id=p>1</p><input id=f value=1><textarea id=t>1</textarea><input type=checkbox id=c>",
        "q('f').focus();type('w');q('t').focus();type('w');q('c').click()",
        "<p id=p>2</p><input id=f value=2 class=y><textarea id=t>2</textarea><input type=checkbox id=c class=z>",
        "q('p').textContent=='2'&&q('f').value.includes('w')&&q('t').value.includes('w')&&q('c').checked&&q('f').className=='y'",
    ],
    [
        "template",
        "<template id=t><p>1</p></template><p id=p>1</p>",
        "mark('t')",
        "<template id=t><p>2</p><i></i></template><p id=p>1</p>",
        "kept('t')&&q('t').innerHTML=='<p>2</p><i></i>'",
    ],
    [
        "classes of scripts",
        r#"<p id=p class="a b">1</p><p id=r>1</p><p id=n class=x>1</p>"#,
        "q('p').classList.add('open');q('r').classList.add('open');q('n').classList.add('open')",
        r#"<p id=p class="b c">2</p><p id=r class=d>2</p><p id=n>2</p>"#,
        "q('p').className.split(' ').sort().join()=='b,c,open'&&q('r').className.split(' ').sort().join()=='d,open'&&q('n').className=='open'",
    ],
    [
        "attributes",
        "<p id=p a=1 b=2>1</p>",
        "q('p').setAttribute('s',1)",
        "<p id=p b=3 c=4>1</p>",
        r#"q('p').outerHTML=='<p id="p" b="3" s="1" c="4">1</p>'"#,
    ],
    [
        "what scripts put in",
        "<ul id=u><li>1</ul>",
        "q('u').before(Object.assign(document.createElement('nav'),{id:'n'}));q('u').append(document.createElement('hr'))",
        "<ul id=u><li>0<li>1</ul>",
        "!!q('n')&&qsa('li').length==2&&qsa('hr').length==1",
    ],
    [
        "what scripts took away",
        "<p id=a>1</p><p id=b>1</p>",
        "q('a').remove()",
        "<p id=a>2</p><p id=b>2</p>",
        "!q('a')&&q('b').textContent=='2'",
    ],
    [
        "texts",
        "<div id=d>one <b>two</b> three</div>",
        "mark('d')",
        "<div id=d>one <i>x</i> <b>two!</b> four</div>",
        "kept('d')&&q('d').innerHTML=='one <i>x</i> <b>two!</b> four'",
    ],
    [
        "strip utm",
        "<p id=p>1</p>",
        "history.replaceState({},'','?stripped')",
        "<p id=p>2</p>",
        "q('p').textContent=='2'",
    ],
    [
        "replaced path",
        "<p id=p>1</p>",
        "history.replaceState({},'','/other')",
        "<p id=p>2</p>",
        "q('p').textContent=='2'",
    ],
    [
        "pushed query",
        "<p id=p>1</p>",
        "history.pushState({},'','?tab=2')",
        "<p id=p>2</p>",
        "q('p').textContent=='2'",
    ],
    [
        "another view",
        "<p id=p>1</p>",
        "let stayed;addEventListener('load',()=>{history.pushState({},'','/elsewhere');setTimeout(()=>{stayed=q('p').textContent=='1';history.back()},20000)})",
        "<p id=p>2</p>",
        "stayed&&q('p').textContent=='2'",
    ],
];

#[test]
fn input_selection_and_focus_survive_updates() {
    let origin = Origin::start();
    let script = Reply::new(200).with("Content-Type: text/javascript");
    origin.on(SCRIPT_PATH).reply(script.body(SCRIPT));
    for (number, &[_, before, act, after, check]) in CASES.iter().enumerate() {
        let next = number + 1;
        let page = move |body: &str| {
            format!(
                "<!doctype html><title>{number}</title><script>{WORDS}
                document.addEventListener('microcache:update', async () => {{
                    let result;
                    try {{ result = {check} ? 'holds' : document.body.innerHTML; }} catch (error) {{ result = error; }}
                    await fetch('/told', {{ method: 'POST', body: result }});
                    location = '/case/{next}';
                }});</script><script type=module src={SCRIPT_PATH}></script><body>{body}<script>{act}</script>"
            )
        };
        origin
            .on(&format!("/case/{number}"))
            .answer(move |requested| {
                // The page itself, and what it was made of, are asked for without this.
                let is_update = requested.field("cache-control").is_some()
                    && requested.field("sec-fetch-mode") != Some("navigate");
                let body = page(if is_update { after } else { before });
                let fields = [
                    "Cache-Control: max-age=0",
                    "Content-Type: text/html; charset=utf-8",
                ];
                Reply::new(200).with_all(&fields).body(body)
            });
    }
    let url = format!("http://{}/case/0", origin.address());
    let Some(_browser) = Browser::open(&url, &[], "what pages keep when they change") else {
        return;
    };
    for (number, [what, ..]) in CASES.iter().enumerate() {
        let reported = origin.wait_for("/told", number + 1);
        let result = reported.body();
        assert_eq!(String::from_utf8_lossy(&result), "holds", "{what}");
    }
}

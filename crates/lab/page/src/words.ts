// The page's words, in English and Korean. Names of encodings, patterns and settings come from their schema, not from here;
// what the program itself says in English is in korean.ts.

const EN = {
  text: "Text", heads: "Heads", split: "What and where", choices: "Encodings", runs: "Runs",
  textSaid: "Each token is colored by how much it surprised the model: the deeper, the less it was expected.",
  encoderSaid: "Each token is blanked in turn; the deeper its color, the less the model would have put it there.",
  headsSaid: "A row of a map is a token that looks, a column a token that is looked at; the stronger the color, the more of its attention goes there.",
  splitSaid: "A score is a sum: what the tokens are (content), where they stand (position), and what only the two together say (interaction).",
  choicesSaid: "Encodings and patterns before any training: how a score falls with distance, who sees whom, and what it costs.",
  runsSaid: "How runs learn, while they learn, and what comparisons found.",
  read: "Read", run: "Run", yourText: "Text", target: "Translation (its own if empty)", reading: "Reading…",
  loading: "Working…", nothingRead: "Give it a text to read.", noRuns: "No runs were found.",
  pair: "A click chooses", pickQuery: "who looks", pickKey: "keys to compare", keyNumber: "Key number",
  updates: "updates", notSaved: "This page holds no answer to that; a server has it: whatwhere serve.",
  expected: "expected", surprising: "surprising", bits: "bits", rank: "rank",
  next: "What comes next", instead: "What it thought of", blankSaid: "What it would put here",
  temperature: "Temperature", topP: "Top-p", goOn: "Go on from here", others: "all others",
  nothingBefore: "Nothing stands before the first token.", tellsClasses: "This model tells classes of whole texts; its heads can be looked at.",
  writing: "Writing…", goOnWriting: "Write on", tokens: "tokens",
  source: "Source", written: "Translation", alignment: "Shaded in the source: what the chosen token looks at.",
  layer: "Layer", head: "Head", site: "Attention",
  encoder: "encoder", decoder: "decoder", cross: "to the source",
  looksAt: "looks at", lookedAt: "is looked at by", direction: "Direction",
  strongest: "Strongest", key: "key", query: "query", weight: "weight", score: "score",
  zoomIn: "Closer", zoomOut: "Farther", whole: "Whole",
  mapSaid: "Map of one head. Arrow keys move, plus and minus zoom; a click chooses the token that looks.",
  clear: "Clear", pickToken: "Choose tokens in the text or on the map.",
  overview: "All heads",
  content: "content", position: "position", interaction: "interaction",
  beside: "Beside it", nothingBeside: "nothing", slide: "Text moved by", positions: "positions",
  settings: "Settings", otherRun: "Another run", centered: "Around the mean of the row",
  centeredSaid: "What all keys have in common does not change the weights.",
  perHead: "How much each kind tells keys apart, by head", alongText: "Along the text",
  strongestKeys: "Keys with the most weight", moved: "From A to B",
  noScores: "This layer mixes without scores: there is nothing to look at.",
  length: "Length", distance: "distance (key − query)", similarity: "Score against distance",
  bias: "What is added to the score", wavelengths: "Positions in a full turn", channel: "pair of channels, fastest first",
  unscaled: "unscaled", scaled: "as set", whoSees: "Who sees whom", cost: "What it costs",
  visible: "visible pairs", ofFull: "of all", computed: "computed pairs", flops: "FLOPs, one head of 64",
  patterns: "Patterns", reset: "Reset", learning: "Learning", filter: "Filter", loss: "loss", valid: "held out",
  step: "update", live: "live", name: "name", accuracy: "accuracy", bleu: "BLEU", difference: "against *", speed: "tokens/s",
  otherLengths: "Loss at other lengths",
  noFolder: "Start with folders to see runs here: whatwhere serve RUN --runs runs/",
  language: "Language", views: "Views", skip: "Skip to content", hidden: "hidden",
  bitsPerByte: "bits per byte", apiKey: "This server asks for a key",
};

export type Word = keyof typeof EN;

const KO: Record<Word, string> = {
  text: "텍스트", heads: "헤드", split: "무엇과 어디", choices: "인코딩", runs: "학습 기록",
  textSaid: "토큰마다 모델이 얼마나 놀랐는지 색으로 보입니다. 색이 짙을수록 예상하지 못한 토큰입니다.",
  encoderSaid: "토큰을 하나씩 가리고 봅니다. 색이 짙을수록 모델이 그 자리에 두지 않았을 토큰입니다.",
  headsSaid: "지도의 행은 보는 토큰, 열은 보이는 토큰이고, 색이 강할수록 주의가 많이 갑니다.",
  splitSaid: "점수는 합입니다. 토큰이 무엇인지(내용), 어디에 있는지(위치), 둘이 함께일 때만 생기는 것(상호작용).",
  choicesSaid: "학습하기 전의 인코딩과 패턴입니다. 거리에 따라 점수가 어떻게 변하고, 누가 누구를 보며, 비용은 얼마인지 보여 줍니다.",
  runsSaid: "학습 중인 모델이 어떻게 배우는지, 비교에서 무엇이 드러났는지 보여 줍니다.",
  read: "읽기", run: "모델", yourText: "텍스트", target: "번역문 (비우면 모델이 번역)", reading: "읽는 중…",
  loading: "계산 중…", nothingRead: "읽을 텍스트를 넣어 주세요.", noRuns: "모델이 없습니다.",
  pair: "누르면 고르는 것", pickQuery: "보는 토큰", pickKey: "견줄 키", keyNumber: "키 번호",
  updates: "업데이트", notSaved: "이 파일에는 그 답이 없습니다. 서버에는 있습니다: whatwhere serve.",
  expected: "예상함", surprising: "놀람", bits: "비트", rank: "순위",
  next: "다음에 올 토큰", instead: "모델이 떠올린 토큰", blankSaid: "여기에 넣을 토큰",
  temperature: "온도", topP: "Top-p", goOn: "여기서 이어 쓰기", others: "나머지 모두",
  nothingBefore: "첫 토큰 앞에는 아무것도 없습니다.", tellsClasses: "글 전체를 분류하는 모델입니다. 헤드를 볼 수 있습니다.",
  writing: "쓰는 중…", goOnWriting: "이어 쓰기", tokens: "토큰",
  source: "원문", written: "번역", alignment: "원문의 색은 고른 토큰이 보는 곳입니다.",
  layer: "층", head: "헤드", site: "주의",
  encoder: "인코더", decoder: "디코더", cross: "원문으로",
  looksAt: "보는 곳", lookedAt: "보고 있는 토큰", direction: "방향",
  strongest: "가장 강한 것", key: "키", query: "쿼리", weight: "가중치", score: "점수",
  zoomIn: "가까이", zoomOut: "멀리", whole: "전체",
  mapSaid: "헤드 하나의 지도입니다. 화살표로 움직이고 더하기와 빼기로 확대하며, 누르면 보는 토큰을 고릅니다.",
  clear: "지우기", pickToken: "텍스트나 지도에서 토큰을 고르세요.",
  overview: "모든 헤드",
  content: "내용", position: "위치", interaction: "상호작용",
  beside: "나란히 보기", nothingBeside: "없음", slide: "텍스트 이동", positions: "위치",
  settings: "설정", otherRun: "다른 모델", centered: "행의 평균을 기준으로",
  centeredSaid: "모든 키에 똑같은 값은 가중치를 바꾸지 않습니다.",
  perHead: "헤드마다 무엇이 키를 가려내는가", alongText: "텍스트를 따라",
  strongestKeys: "가중치가 가장 큰 키", moved: "A에서 B로 움직인 정도",
  noScores: "이 층은 점수 없이 섞으므로 볼 것이 없습니다.",
  length: "길이", distance: "거리 (키 − 쿼리)", similarity: "거리에 따른 점수",
  bias: "점수에 더해지는 값", wavelengths: "한 바퀴를 도는 위치 수", channel: "채널 쌍, 빠른 것부터",
  unscaled: "조정 전", scaled: "설정대로", whoSees: "누가 누구를 보는가", cost: "비용",
  visible: "보이는 쌍", ofFull: "전체 대비", computed: "계산하는 쌍", flops: "FLOPs, 64채널 헤드 하나",
  patterns: "패턴", reset: "되돌리기", learning: "학습", filter: "거르기", loss: "손실", valid: "검증",
  step: "업데이트", live: "실시간", name: "이름", accuracy: "정확도", bleu: "BLEU", difference: "기준(*) 대비", speed: "토큰/초",
  otherLengths: "다른 길이에서의 손실",
  noFolder: "폴더와 함께 시작하면 여기에 보입니다: whatwhere serve RUN --runs runs/",
  language: "언어", views: "보기", skip: "본문으로", hidden: "가려짐",
  bitsPerByte: "바이트당 비트", apiKey: "이 서버는 키가 필요합니다",
};

export const LANGUAGES: [string, string][] = [["en", "English"], ["ko", "한국어"]];

let words: Record<Word, string> = EN;

/** Chooses the language, and tells screen readers. */
export function speak(language: string): void {
  words = language === "ko" ? KO : EN;
  document.documentElement.lang = language === "ko" ? "ko" : "en";
}

/** The language of the browser where no other was chosen. */
export const preferred = (): string => (navigator.language.startsWith("ko") ? "ko" : "en");

export const isKorean = (): boolean => words === KO;

export const say = (word: Word): string => words[word];

/** A number with as many digits as can be read at a glance. */
export function figure(value: number, digits = 2): string {
  if (!Number.isFinite(value)) return "–";
  const text = value.toFixed(Math.abs(value) >= 1000 ? 0 : digits);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

/** A weight, which may be a very small one. */
export const weight = (value: number): string =>
  value > 0 && value < 0.0005 ? value.toExponential(1).replace("-", "−") : figure(value, 3);

/** A count with a blank between thousands. */
export const count = (value: number): string => value.toLocaleString("en").replaceAll(",", " ");

/** A share in percent. */
export function percent(share: number): string {
  const value = 100 * share;
  return `${value >= 10 ? value.toFixed(0) : value >= 0.1 ? value.toFixed(1) : value > 0 ? "<0.1" : "0"} %`;
}

/** A token with its blanks visible. */
export const visible = (token: string): string =>
  token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll("\r", "␍") || "∅";

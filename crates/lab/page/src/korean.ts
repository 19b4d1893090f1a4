// What the program says in English, in Korean. What is missing here, such as an encoding of tomorrow, stays English.

import type { About } from "./source";
import { count, isKorean } from "./words";

/** Terms of a score: name and meaning. */
const TERMS: Record<string, [string, string]> = {
  "content": ["내용", "쿼리와 키가 같은 위치에 있다고 보고 견준 값"],
  "content · content": ["내용 · 내용", "쿼리의 내용과 키의 내용을 견준 값"],
  "content · position": ["내용 · 위치", "쿼리의 내용과 키의 위치를 견준 값"],
  "position · content": ["위치 · 내용", "쿼리의 위치와 키의 내용을 견준 값"],
  "position · position": ["위치 · 위치", "쿼리의 위치와 키의 위치를 견준 값"],
  "u·k": ["u·k", "어느 쿼리나 키의 내용에 똑같이 묻는 값: Transformer-XL의 (c)"],
  "distance": ["거리", "텍스트의 평균 쿼리와 평균 키에 각도가 하는 일"],
  "content × distance": ["내용 × 거리", "평균에 하는 일을 넘어 각도가 이 쿼리와 이 키에 하는 일"],
  "soft cap": ["상한", "상한이 깎아 낸 값"],
  "q·a": ["q·a", "이 쿼리가 거리에 묻는 값: Shaw의 항, Transformer-XL의 (b)"],
  "a·k": ["a·k", "거리가 이 키에 묻는 값: 쿼리에도 벡터를 둔 Shaw, DeBERTa의 ‘위치에서 내용으로’"],
  "v·a": ["v·a", "어느 쿼리나 거리에 똑같이 묻는 값: Transformer-XL의 (d)"],
  "slope · distance": ["기울기 · 거리", "ALiBi의 벌점, 헤드마다 기울기 하나"],
  "bucket of the distance": ["거리의 구간", "T5의 바이어스, 헤드와 구간마다 수 하나"],
};

/** Why content cannot be told from position, by a word of the reason. */
const NOTES: [RegExp, string][] = [
  [/layers before/, "임베딩에 더한 위치가 앞선 층에서 내용과 섞였습니다"],
  [/magnitude/, "둘의 합에서 크기를 취하기 때문입니다"],
  [/tanh/, "둘의 합에 tanh를 취하기 때문입니다"],
];

/** Encodings and patterns in a sentence. */
const CHOICES: Record<string, string> = {
  none: "위치를 알려 주지 않습니다. 인과 패턴만으로도 순서를 알 수 있습니다. 자리마다 보이는 키의 수가 다르기 때문입니다(NoPE).",
  sinusoidal: "파장이 등비로 늘어나는 사인과 코사인을 임베딩에 더합니다. 학습하는 값이 없고, 학습한 길이를 넘으면 약합니다.",
  learned: "위치마다 학습한 벡터 하나를 임베딩에 더합니다. 정한 길이를 넘는 위치는 없습니다.",
  shaw: "거리마다 학습한 벡터를 키와 값에 더합니다. 먼 거리는 모두 같아 보입니다.",
  transformer_xl: "내용과 거리를 따로 묻고, 각각에 모든 쿼리가 함께 쓰는 바이어스가 있습니다. 기억을 이어 가는 긴 글을 위한 것입니다.",
  disentangled: "내용이 거리에 묻고 거리가 내용에 묻습니다(DeBERTa). 인코더를 위한 것입니다.",
  rotary: "쿼리와 키의 채널 쌍을 위치만큼 돌려, 곱이 거리에 따라 달라지게 합니다. 학습한 길이를 넘으려면 조정(scaling)이 필요합니다.",
  polar: "내용은 크기, 위치는 위상입니다(PoPE). 학습한 길이를 훨씬 넘어서도 잘 버팁니다.",
  single_angle: "모든 채널이 한 각도로 도는, 단순하게 한 PoPE입니다. 한 주기 떨어진 위치는 같아 보이며, 비교용입니다.",
  alibi: "헤드마다 정해진 기울기로, 거리에 비례하는 값을 점수에서 뺍니다. 학습 때보다 긴 입력을 위한 것입니다.",
  t5: "거리를 구간으로 나누어, 헤드와 구간마다 학습한 수 하나를 점수에 더합니다.",
  full: "모든 쿼리가 모든 키를 봅니다. 인코더와 교차 주의에 씁니다.",
  causal: "쿼리는 자기 위치까지의 키만 봅니다. 언어 모델에 쓰며, 비용은 전체의 절반입니다.",
  window: "쿼리는 자기 위치 앞뒤의 정해진 수만큼의 키를 봅니다. 비용은 길이 × 창입니다.",
  dilated: "일정한 간격으로 건너뛰며 보는 창입니다. 같은 수의 키로 더 멀리 봅니다.",
  strided: "바로 앞의 키들과, 그 앞에서 일정한 간격마다 하나씩 봅니다. 주기가 있는 자료에 알맞습니다.",
  fixed: "자기 블록의 키와, 앞선 블록마다 마지막 몇 개의 키를 봅니다.",
  random: "쿼리 블록마다 무작위로 뽑은 키 블록을 봅니다. 다른 패턴과 함께 씁니다.",
  global: "몇몇 위치가 모두를 보고 모두에게 보입니다. 창과 함께 씁니다.",
  prefix: "앞부분은 모두에게 보이고, 나머지는 인과적입니다.",
  document: "쿼리는 자기 문서의 키만 봅니다. 여러 글을 한 줄로 이어 학습할 때 씁니다.",
  predicted: "쿼리마다 볼 위치를 예측해 그 둘레만 봅니다.",
  and: "모든 부분 패턴이 보여 주는 것만 봅니다.",
  or: "부분 패턴 가운데 하나라도 보여 주면 봅니다.",
};

const FAMILIES: Record<About["family"], string> = {
  "decoder": "디코더", "encoder": "인코더", "encoder-decoder": "인코더-디코더",
};

/** A term's name and meaning in the page's language. */
export const term = (name: string, meaning: string): [string, string] =>
  isKorean() ? TERMS[name] ?? [name, meaning] : [name, meaning];

/** What must be said of the terms. */
export function remark(text: string): string {
  const found = isKorean() ? NOTES.find(([pattern]) => pattern.test(text)) : undefined;
  return found ? `내용에 위치도 들어 있습니다. ${found[1]}.` : text;
}

/** What an encoding or a pattern is: in Korean a sentence, and of the program's own lines the addresses. */
export function summaryOf(name: string, lines: string[]): string[] {
  const own = isKorean() ? CHOICES[name] : undefined;
  if (!own) return lines.slice(0, 3);
  const links = lines.join(" ").match(/https:\/\/[^\s>,]+/g) ?? [];
  return [own, ...(links.length ? [links.join(" ")] : [])];
}

/** A model in a few words. */
export function about(of: About): string {
  if (!isKorean()) return of.words.join(" ");
  const cell = /GRU|LSTM/.exec(of.words.join(" "))?.[0];
  return `${cell ? `${cell} ` : ""}${FAMILIES[of.family]}, ${of.layers}층, 너비 ${of.width}, 매개변수 ${count(of.parameters)}개, 업데이트 ${count(of.step)}번.`;
}

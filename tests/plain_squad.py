"""A plain n-best selection with loops over pairs and characters. `squad_answers` must give equal results."""

import collections
import math

import tokenization

Candidate = collections.namedtuple("Candidate", ["window", "start", "end", "start_logit", "end_logit"])


def final_text(predicted, original, do_lower_case):
    """Returns the result of `squad_answers.get_final_text`.

    The function maps positions in texts with spaces to positions in texts without spaces.
    """
    normalized = " ".join(tokenization.BasicTokenizer(do_lower_case).tokenize(original))
    start = normalized.find(predicted)
    end = start + len(predicted) - 1
    places, characters = without_spaces(original)
    normalized_places, normalized_characters = without_spaces(normalized)
    number_of = {place: number for number, place in enumerate(normalized_places)}
    if (start < 0 or len(characters) != len(normalized_characters) or start not in number_of
            or end not in number_of):
        return original
    return original[places[number_of[start]]:places[number_of[end]] + 1]


def without_spaces(text):
    """Returns (places, characters) of all characters that are not spaces."""
    places, characters = [], []
    for place, character in enumerate(text):
        if character != " ":
            places.append(place)
            characters.append(character)
    return places, characters


def best_positions(logits, count):
    ranked = sorted(enumerate(logits), key=lambda pair: pair[1], reverse=True)
    return [position for position, _ in ranked[:count]]


def candidates(windows, n_best_size, max_answer_length, with_null):
    """Returns (all `Candidate`s from best to worst, the logits of the null answer)."""
    found, null, least = [], (0, 0.0, 0.0), math.inf
    for index, (feature, result) in enumerate(windows):
        if result.start_logits[0] + result.end_logits[0] < least:
            least = result.start_logits[0] + result.end_logits[0]
            null = (index, result.start_logits[0], result.end_logits[0])
        ends = best_positions(result.end_logits, n_best_size)
        for start in best_positions(result.start_logits, n_best_size):
            for end in ends:
                if start >= len(feature.tokens) or end >= len(feature.tokens):
                    continue
                if start not in feature.token_to_orig_map or end not in feature.token_to_orig_map:
                    continue
                if not feature.token_is_max_context.get(start,
                                                        False) or not 0 <= end - start < max_answer_length:
                    continue
                found.append(Candidate(index, start, end, result.start_logits[start], result.end_logits[end]))
    if with_null:
        found.append(Candidate(null[0], 0, 0, *null[1:]))
    return sorted(found, key=lambda candidate: candidate.start_logit + candidate.end_logit,
                  reverse=True), null[1:]


def nbest(example, windows, n_best_size, max_answer_length, do_lower_case, with_null):
    """Returns ([(text, start logit, end logit)], null logits) of an example."""
    found, null = candidates(windows, n_best_size, max_answer_length, with_null)
    entries, seen = [], set()
    for index, start, end, start_logit, end_logit in found:
        if len(entries) >= n_best_size:
            break
        text = ""
        if start > 0:
            feature = windows[index][0]
            predicted = " ".join(feature.tokens[start:end + 1]).replace(" ##", "").replace("##", "")
            words = example.doc_tokens[feature.token_to_orig_map[start]:feature.token_to_orig_map[end] + 1]
            text = final_text(" ".join(predicted.split()), " ".join(words), do_lower_case)
            if text in seen:
                continue
        seen.add(text)
        entries.append((text, start_logit, end_logit))
    if with_null and "" not in seen:
        entries.append(("", *null))
    return entries or [("empty", 0.0, 0.0)], null


def predict(examples, features, results, n_best_size, max_answer_length, do_lower_case, with_null,
            threshold=0.0):
    """Returns the contents of the three result files: (texts, n-best lists, null odds)."""
    texts, lists, odds = {}, {}, {}
    windows_of, result_of = {}, {result.unique_id: result for result in results}
    for feature in features:
        windows_of.setdefault(feature.example_index, []).append((feature, result_of[feature.unique_id]))
    for index, example in enumerate(examples):
        entries, null = nbest(example, windows_of.get(index, []), n_best_size, max_answer_length,
                              do_lower_case, with_null)
        scores = [start_logit + end_logit for _, start_logit, end_logit in entries]
        weights = [math.exp(score - max(scores)) for score in scores]
        lists[example.qas_id] = [
            {"text": text, "probability": weight / sum(weights), "start_logit": start_logit,
             "end_logit": end_logit}
            for (text, start_logit, end_logit), weight in zip(entries, weights)]
        texts[example.qas_id] = entries[0][0]
        if with_null:
            text, start_logit, end_logit = next((entry for entry in entries if entry[0]), ("", 0.0, 0.0))
            odds[example.qas_id] = sum(null) - start_logit - end_logit if text else 1000000.0
            texts[example.qas_id] = "" if odds[example.qas_id] > threshold else text
    return texts, lists, odds

"""Contains the task of run_squad.py: its flags, its data, its model and its results."""

import os

from absl import logging

from bertlib.runs import model_config, recorded_flags
from bertlib.runs.input_paths import require_file, sample_path
from bertlib.system import files, terminal
from bertlib.tasks import data_splits, task
from bertlib.tasks.squad import span_selection, squad_data, squad_metrics, squad_target

# Names of the files with answers.
_ANSWERS = "predictions.json", "nbest_predictions.json", "null_odds.json", "answer_offsets.json"


def _texts_of(example):
    """Returns the texts of a `SquadExample` for `Task.draw`."""
    return [example.question_text, example.orig_answer_text, *example.doc_tokens]


class QuestionAnswering(task.Task):
    """Finds the answers to questions in paragraphs, as in SQuAD. The data of a split are a list of
    `SquadExample`. As in the published code, the number of steps depends on the number of questions, not on
    the number of windows.

    Attributes:
      gold: the right answers to the questions of "dev", see `squad_data.read_gold`; None without --do_eval.
    """

    command, noun, title, full_score = "run_squad.py", "question", "Answers to --predict_file", 100
    target = squad_target.Spans()
    feature_files = {"train": "train.tf_record", "dev": "eval.tf_record"}
    result_splits = "dev",
    segments_reason = "each input is a question and a context"
    # The published loss depends on padding. The predictions do not.
    trims_padding_in_training = False

    def __init__(self, settings):
        super().__init__(settings)
        self.gold = None

    @property
    def metric_titles(self):
        exact = "exact" if self.settings.version_2_with_negative else "exact_match"
        return {"f1": "F1", exact: "exact match"}

    @property
    def _version(self):
        return "2.0" if self.settings.version_2_with_negative else "1.1"

    # --- Flags

    def resolve(self):
        settings = self.settings
        self.resolve_run(f"squad-v{self._version}")
        needs = {"train_file": settings.do_train, "predict_file": settings.do_predict or settings.do_eval}
        sampled = settings.train_file is None and settings.predict_file is None
        for name, part in (("train_file", "train"), ("predict_file", "dev")):
            if needs[name] and getattr(settings, name) is None:
                if not sampled:
                    raise ValueError(f"--{name} is required.")
                recorded_flags.refuse_sample(settings, sample_path("squad"), f"--{name}")
                settings.set_default(name, sample_path("squad", f"{part}-v{self._version}.json"),
                                     "a small sample made for this repository, not the real SQuAD")
            if needs[name]:
                require_file(settings, name)
        model_config.resolve_model_flags(settings)
        self.check_flags()

    def check_flags(self):
        """Checks that the flags of this task do not contradict each other.

        Raises:
          ValueError: the flags contradict each other.
        """
        settings = self.settings
        if settings.max_seq_length <= settings.max_query_length + 3:
            raise ValueError(f"--max_seq_length={settings.max_seq_length} leaves no room for a context after "
                             f"3 special tokens and a question of --max_query_length="
                             f"{settings.max_query_length}. Raise --max_seq_length or lower "
                             "--max_query_length.")
        if settings.find_null_threshold and not (settings.version_2_with_negative and settings.do_eval):
            raise ValueError("--find_null_threshold needs --version_2_with_negative and --do_eval, because "
                             "the threshold is computed from the right answers, some of which must be empty. "
                             "Pass these two flags, or leave --find_null_threshold out.")
        if settings.do_train and settings.tokens_per_micro_batch and not settings.trim_padding:
            raise ValueError("--tokens_per_micro_batch needs --trim_padding=true, which is not the default "
                             "in this command because the published loss depends on padding. Pass "
                             "--trim_padding=true, or leave --tokens_per_micro_batch out.")

    # --- Files and data

    def input_files(self):
        return data_splits.list_files(self.settings, ("train_file", "predict_file"))

    def result_names(self, split):
        return [*_ANSWERS, *super().result_names("dev"), *super().result_names("test")]

    def read(self):
        settings, version_2 = self.settings, self.settings.version_2_with_negative
        if settings.do_train:
            examples = squad_data.read_squad_examples(settings.train_file, True, version_2)
            self.data["train"] = self.draw("train", examples, _texts_of)
        if settings.do_predict or settings.do_eval:
            self.data["dev"] = squad_data.read_squad_examples(settings.predict_file, False, version_2)
        if settings.do_eval:
            gold = squad_data.read_gold(settings.predict_file)
            self.data["dev"] = self.draw("dev", self.data["dev"], _texts_of)
            self.gold = {example.qas_id: gold[example.qas_id] for example in self.data["dev"]}
            unanswerable = sum(not answers for answers in self.gold.values())
            if unanswerable and not version_2:
                logging.warning("--predict_file=%s: %d of %d questions have no answer. Every prediction for "
                                "these questions counts as wrong. If the file has the format of SQuAD 2.0, "
                                "pass --version_2_with_negative.", settings.predict_file, unanswerable,
                                len(self.gold))
        self.warn_of_unknown_tokens(lambda example: (example.question_text, example.doc_tokens))

    # --- The model

    def record_fields(self):
        settings = self.settings
        return {"task": f"SQuAD {self._version}",
                **data_splits.data_fields(settings, lambda: len(self.data["dev"]),
                                          dev=[settings.predict_file])}

    # --- The run

    def write_features(self, split, path):
        settings, examples = self.settings, self.data[split]
        windows = squad_data.file_based_convert_examples_to_features(
            examples, self.tokenizer, *self.lengths, split == "train", path, settings.num_workers,
            settings.features_cache)
        logging.info("%s: %s, %s.", path, terminal.counted(len(examples), "question"),
                     terminal.counted(windows, "window"))

    @property
    def lengths(self):
        """(--max_seq_length, --doc_stride, --max_query_length)."""
        settings = self.settings
        return settings.max_seq_length, settings.doc_stride, settings.max_query_length

    def predict(self, split, inference):
        predictions = [answer._replace(nbest=None) for answer in self._answers(split, inference)]
        threshold, _ = self._null_threshold(predictions, inference)
        texts = {prediction.qas_id: prediction.final_answer(threshold).text for prediction in predictions}
        scores = self._scores_of(predictions, texts, threshold)
        return predictions, {**scores, "global_step": inference.step}

    def evaluate_and_write(self, split, inference):
        """Writes the answers, a table of the answers and an HTML report. Also writes the scores, if the right
        answers are known."""
        from bertlib.tasks import results
        from bertlib.tasks.squad import squad_report

        def path(name):
            return os.path.join(settings.results_dir, name)

        settings, gold, examples = self.settings, self.gold, self.data[split]
        version_2 = settings.version_2_with_negative
        logging.info("Answering %d questions.", len(examples))
        predictions = span_selection.write_nbest(self._answers(split, inference),
                                                 path("nbest_predictions.json"))
        threshold, source = self._null_threshold(predictions, inference)
        if version_2:
            logging.info("Null threshold: %s (%s).", threshold, source)
        texts = span_selection.write_answers(predictions, path("predictions.json"),
                                             path("null_odds.json") if version_2 else None,
                                             path("answer_offsets.json"), threshold)
        logging.info("Answers: %s.", path("predictions.json"))
        scores = {}
        if gold is None:
            _remove_scores(path("eval_results.json"))
        else:
            scores = self._scores_of(predictions, texts, threshold)
            results.write_metrics(settings, "dev", task.RESULT_NAMES["dev"],
                                  {**scores, "global_step": inference.step})
        answers = [prediction.final_answer(threshold) for prediction in predictions]
        if version_2 and len(answers) > 1 and not any(answer.text for answer in answers):
            logging.warning("predictions.json: all %d answers are empty: the model takes no question for "
                            "answerable. Train longer, or pass a higher --null_score_diff_threshold.",
                            len(answers))
        rows = squad_report.predicted_rows(examples, predictions, answers, gold, version_2)
        self.write_table(task.TABLE_NAMES["test" if gold is None else "dev"], rows, self.target.separator)
        results.write_report_or_warn(self, task.REPORT, f"SQuAD {self._version}", scores,
                                     settings.predict_file, squad_report.write_report, rows, answers, gold)

    def _answers(self, split, inference):
        """Yields the `Prediction` of each question."""
        settings = self.settings
        features = squad_data.generate_features(self.data[split], self.tokenizer, *self.lengths,
                                                is_training=False, report=False)
        outputs = (span_selection.RawResult(int(row["unique_ids"]), row["start_logits"], row["end_logits"])
                   for row in inference.rows())
        return span_selection.select_answers(self.data[split], features, outputs, span_selection.Search(
            settings.n_best_size, settings.max_answer_length, settings.do_lower_case,
            settings.version_2_with_negative, settings.verbose_logging,
            getattr(self.tokenizer, "basic_tokenizer", None), self.trims_padding(is_training=False)))

    def _null_threshold(self, predictions, inference):
        """Returns (threshold, source): the null threshold, and a str that says where it comes from.

        With --find_null_threshold=true, the threshold is the best one for these predictions. A run without
        training uses the threshold of the last evaluation, unless --null_score_diff_threshold is given.
        """
        settings = self.settings
        if settings.find_null_threshold:
            return (squad_metrics.find_null_threshold(self.gold, predictions),
                    f"the best value of --null_score_diff_threshold on {settings.predict_file}")
        checkpoint = inference.checkpoint or settings.init_checkpoint
        if checkpoint and not settings.do_train and not settings.is_given("null_score_diff_threshold"):
            threshold, path = squad_target.read_null_threshold(checkpoint)
            if threshold is not None:
                return threshold, path
        return settings.null_score_diff_threshold, "--null_score_diff_threshold"

    def _scores_of(self, predictions, texts, threshold):
        """Returns a dict {name: number}, the content of eval_results.json.

        Args:
          predictions: list of `Prediction`.
          texts: {qas_id: the final answer}.
          threshold: the null threshold with which `texts` were chosen, see --null_score_diff_threshold.
        """
        if not self.settings.version_2_with_negative:
            return squad_metrics.evaluate(self.gold, texts)
        scores = squad_metrics.evaluate(self.gold, texts, True, span_selection.null_odds(predictions))
        return {**scores, "null_score_diff_threshold": threshold}


def _remove_scores(path):
    """Removes the scores of an earlier evaluation from eval_results.json, because they belong to other
    answers. Later predictions still need the null threshold."""
    if files.exists(path):
        content = {name: value for name, value in files.read_json_object(path).items()
                   if name in ("null_score_diff_threshold", "global_step")}
        if "null_score_diff_threshold" in content:
            files.write_json(path, content, indent=2)

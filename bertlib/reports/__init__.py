"""Shows and compares results: HTML reports, significance tests, sweeps, and repetitions of a training.

- How is a page made? `report_page` (from the folder `templates`), `charts` (SVG), `report_sections`,
  `classification_report`, `choice_report`
- How good is a score? `baselines`, `bag_of_words` (a program), `intervals`
- Which of two models is better? `paired_predictions`, `answer_differences`, `paired_tests`, `paired_sweeps`
- How does a sweep run? `sweep_grid` lists the runs. `sweep_loop` starts those that `sweep_directory` does not
  have yet. `sweep_runs` ranks them, and `sweep_page` shows them.
- Is a training the same again? `recorded_inputs`, `reproduction` (its command and flags), `run_differences`
"""

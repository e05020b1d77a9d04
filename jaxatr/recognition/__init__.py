"""A finished run of open-set recognition in use: decision, predictions, enrolment, evaluation."""

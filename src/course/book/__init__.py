"""course/book"""

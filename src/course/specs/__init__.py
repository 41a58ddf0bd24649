"""course/specs"""

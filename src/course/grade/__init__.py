"""course/grade"""

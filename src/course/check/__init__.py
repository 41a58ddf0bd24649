"""course/check"""
